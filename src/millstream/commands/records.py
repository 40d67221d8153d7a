"""Records as text: lines to records for `produce`, records to lines for `consume`.

Pure. JSON goes both ways without loss: what `consume --json` prints, `produce --json-lines` takes.
Bytes that are not UTF-8 are base64 under another name, so that no text can be mistaken for them:

    {"key": "ada", "value": "hello"}            text
    {"key": "ada", "value_base64": "/w=="}      bytes
    {"key": "ada", "value": null}               no value: a tombstone
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from millstream.base.errors import Rejected
from millstream.commands.positions import format_time_ms, parse_iso_time_ms

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRecord:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class BadInput(Rejected):
    def __init__(self, *, line: int, problem: str, noun: str = "Line") -> None:
        super().__init__(f"{noun} {line}: {problem}")
        self.line, self.problem = line, problem


class BadFormat(Rejected):
    def __init__(self, *, format: str, problem: str) -> None:
        super().__init__(f"--format {format!r}: {problem}. There are: {PLACEHOLDER_HELP}")
        self.format = format


# --- In ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """How `produce` reads a line. The options that hold for every record are given once."""

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    json_lines: bool = False
    noun: str = "Line"
    """What its input is called when it is bad: arguments are no lines."""

    def read(self, line: bytes, number: int) -> OutgoingRecord:
        if self.json_lines:
            return self._read_json(line, number)
        key, value = self.key, line
        if self.key_separator:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                shown = self.key_separator.decode(errors="replace")
                raise self._bad(number, f"no key: it has no separator {shown!r}")
        return OutgoingRecord(key=key, value=value, headers=self.headers, partition=self.partition)

    def _bad(self, number: int, problem: str) -> BadInput:
        return BadInput(line=number, problem=problem, noun=self.noun)

    def _read_json(self, line: bytes, number: int) -> OutgoingRecord:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise self._bad(number, f"not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise self._bad(number, "not a JSON object with key, value, headers ...")
        try:
            return self._from_fields(fields)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._bad(number, str(error)) from None

    def _from_fields(self, fields: Mapping[str, Any]) -> OutgoingRecord:
        unknown = fields.keys() - KNOWN_FIELDS
        if unknown:
            raise ValueError(
                f"unknown field {', '.join(sorted(unknown))}; a record has "
                "key, value, headers, timestamp and partition"
            )
        key = self.key if self.key is not None else bytes_from_json(fields, "key")
        partition = self.partition if self.partition is not None else fields.get("partition")
        if partition is not None and not _is_number_from_0(partition):
            raise ValueError(f"partition {partition!r} is not a number from 0")
        return OutgoingRecord(
            key=key,
            value=bytes_from_json(fields, "value"),
            headers=self.headers + headers_from_json(fields.get("headers")),
            partition=partition,
            timestamp_ms=_timestamp_from_json(fields.get("timestamp")),
        )


# "topic" and "offset" are in what `consume --json` prints; a record is sent to the topic asked for.
KNOWN_FIELDS = frozenset(
    [
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
        "timestamp",
        "partition",
        "topic",
        "offset",
    ]
)


def bytes_from_json(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Text as UTF-8; null as nothing; anything else as JSON of its own."""
    if f"{name}_base64" in fields:
        try:
            return base64.b64decode(fields[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError):
            raise ValueError(f"{name}_base64 is not base64") from None
    content = fields.get(name)
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text.encode()


def headers_from_json(headers: object) -> tuple[Header, ...]:
    """A list of {"name": ..., "value": ...} in order, or simply an object."""
    if headers is None:
        return ()
    if isinstance(headers, dict):
        return tuple((name, bytes_from_json({"value": headers[name]}, "value")) for name in headers)
    if isinstance(headers, list) and all(isinstance(i, dict) and "name" in i for i in headers):
        return tuple((str(item["name"]), bytes_from_json(item, "value")) for item in headers)
    raise ValueError('headers are an object, or a list of {"name": ..., "value": ...}')


def _timestamp_from_json(timestamp: object) -> int | None:
    if timestamp is None:
        return None
    time_ms = parse_iso_time_ms(timestamp) if isinstance(timestamp, str) else timestamp
    if not _is_number_from_0(time_ms):
        raise ValueError(f"timestamp {timestamp!r} is neither ISO 8601 nor milliseconds")
    return cast(int, time_ms)


def _is_number_from_0(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# --- Out -----------------------------------------------------------------------------------


def to_json(record: IncomingRecord) -> dict[str, Any]:
    at = record.timestamp_ms
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if at is None else format_time_ms(at),
        **bytes_to_json("key", record.key),
        **bytes_to_json("value", record.value),
        "headers": [{"name": name} | bytes_to_json("value", v) for name, v in record.headers],
    }


def bytes_to_json(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def to_json_line(record: IncomingRecord) -> bytes:
    return json.dumps(to_json(record), ensure_ascii=False).encode() + b"\n"


PLACEHOLDERS: dict[str, tuple[str, Callable[[IncomingRecord], bytes]]] = {
    "t": ("topic", lambda record: record.topic.encode()),
    "p": ("partition", lambda record: b"%d" % record.partition),
    "o": ("offset", lambda record: b"%d" % record.offset),
    "T": ("time", lambda record: _time(record).encode()),
    "k": ("key", lambda record: record.key or b""),
    "v": ("value", lambda record: record.value or b""),
    "h": ("headers", lambda record: _headers(record)),
    "%": ("a percent sign", lambda record: b"%"),
}
PLACEHOLDER_HELP = ", ".join(f"%{letter} {what}" for letter, (what, _) in PLACEHOLDERS.items())
PRESETS = {"value": "%v", "columns": r"%T  %p  %o  %k\t%v"}
ESCAPES = {r"\t": "\t", r"\n": "\n", r"\0": "\0", r"\\": "\\"}


def line_writer(format: str) -> Callable[[IncomingRecord], bytes]:
    """A function that writes a record as one line, value bytes as they are."""
    template = re.sub(r"\\.", lambda m: ESCAPES.get(m[0], m[0]), PRESETS.get(format, format))
    parts: list[bytes | Callable[[IncomingRecord], bytes]] = []
    for text, letter in re.findall(r"([^%]+)|%(.?)", template, re.DOTALL):
        if text:
            parts.append(text.encode())
        elif letter in PLACEHOLDERS:
            parts.append(PLACEHOLDERS[letter][1])
        else:
            raise BadFormat(format=format, problem=f"no placeholder %{letter}")
    if all(isinstance(part, bytes) for part in parts):
        problem = "neither value, columns nor a template with a placeholder"
        raise BadFormat(format=format, problem=problem)

    def write(record: IncomingRecord) -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(record) for p in parts) + b"\n"

    return write


def _time(record: IncomingRecord) -> str:
    return "-" if record.timestamp_ms is None else format_time_ms(record.timestamp_ms)


def _headers(record: IncomingRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)
