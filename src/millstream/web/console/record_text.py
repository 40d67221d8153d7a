"""Keys, values and headers of records as text, and back from what a form has. Pure.

Bytes that are UTF-8 are text; JSON is set out in lines, and is otherwise as it was written; all
else is shown in hexadecimal.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.base.record import Header
from millstream.values.unfit import Unfit
from millstream.web.console.facts import RecordSeen

Kind = Literal["null", "json", "text", "bytes"]
LINE_CHARACTERS_MAX = 160
# Of one value on its own page; a record may have a megabyte, or a hundred.
TEXT_CHARACTERS_MAX = 100_000
HEX_BYTES_MAX = 4_096
HEX_BYTES_A_LINE = 16
HEADERS_MAX = 100
SPANS_MAX = 10
INDENT = "  "
# A text, a sign, or what is between two of them: a number or a word.
JSON_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`is_cut`: there is more than is shown."""

    kind: Kind
    text: str
    size_bytes: int
    is_cut: bool = False


def in_line(found: bytes | None) -> str:
    """On one line, cut at a length; of bytes the first ones."""
    if found is None:
        return "null"
    try:
        text = found[: 4 * LINE_CHARACTERS_MAX].decode()
    except UnicodeDecodeError as error:
        # The cut may have parted a character; damage before it is damage.
        if error.start < 4 * LINE_CHARACTERS_MAX - 3:
            return f"{len(found)} bytes: {found[:24].hex(' ')}"
        text = found[: error.start].decode()
    flat = " ".join(text.split())
    return flat if len(flat) <= LINE_CHARACTERS_MAX else flat[: LINE_CHARACTERS_MAX - 1] + "…"


def in_full(found: bytes | None) -> Shown:
    if found is None:
        return Shown(kind="null", text="null", size_bytes=0)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        is_cut = len(found) > HEX_BYTES_MAX
        return Shown(kind="bytes", text=hex_dump(found), size_bytes=len(found), is_cut=is_cut)
    pretty = _pretty(text)
    shown = text if pretty is None else pretty
    return Shown(
        kind="text" if pretty is None else "json",
        text=shown[:TEXT_CHARACTERS_MAX],
        size_bytes=len(found),
        is_cut=len(shown) > TEXT_CHARACTERS_MAX,
    )


def _pretty(text: str) -> str | None:
    """None for what is no object or array. Of a long one the original is shown."""
    if text[:1] not in ("{", "[") or len(text) > TEXT_CHARACTERS_MAX:
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str)  # a number may have any length
    except (ValueError, RecursionError):
        return None
    return _indented(text)


def _indented(text: str) -> str:
    """Valid JSON in lines, token by token: what is read and written again loses keys that come
    twice and digits, and may be no text any more. What is deep grows with its square: it is left
    off where it would be cut."""
    parts: list[str] = []
    size = 0
    for part in _laid_out(JSON_TOKENS.findall(text)):
        parts.append(part)
        size += len(part)
        if size > TEXT_CHARACTERS_MAX:
            break
    return "".join(parts)


def _laid_out(tokens: list[str]) -> Iterator[str]:
    depth = 0
    before = ""
    for token in tokens:
        depth -= token in ("}", "]")
        is_first, is_last = before in ("{", "["), token in ("}", "]")
        if (is_first or is_last or before == ",") and not (is_first and is_last):
            yield "\n" + INDENT * depth
        yield ": " if token == ":" else token
        depth += token in ("{", "[")
        before = token


def hex_dump(found: bytes) -> str:
    shown = found[:HEX_BYTES_MAX]
    starts = range(0, len(shown), HEX_BYTES_A_LINE)
    return "\n".join(_hex_line(start, shown[start : start + HEX_BYTES_A_LINE]) for start in starts)


def _hex_line(start: int, part: bytes) -> str:
    plain = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
    return f"{start:06x}  {part.hex(' '):<{3 * HEX_BYTES_A_LINE}} {plain}"


def matches(record: RecordSeen, wanted: str) -> bool:
    """Whether the text is somewhere in its key, value or headers, in any case of letters."""
    if not wanted:
        return True
    needle = wanted.casefold()
    headers = record.headers or ()
    texts = [record.key, record.value, *(value for _, value in headers)]
    names = any(needle in name.casefold() for name, _ in headers)
    return names or any(
        needle in text.decode("utf-8", "replace").casefold() for text in texts if text is not None
    )


def spans(numbers: Sequence[int]) -> str:
    """Those behind one another as one: 1–3, 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    words = [f"{first}" if first == last else f"{first}–{last}" for first, last in found]
    return ", ".join([*words[:SPANS_MAX], *(["…"] if len(words) > SPANS_MAX else [])])


def headers_from(text: str) -> tuple[Header, ...]:
    """Of lines `name: value`."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > HEADERS_MAX:
        raise Unfit(f"{len(lines)} headers: {HEADERS_MAX} at most")
    return tuple(map(_header, lines))


def _header(line: str) -> Header:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise Unfit(f"the header {line!r} is not `name: value`")
    return name.strip(), value.strip().encode()


def bytes_from(text: str, *, is_null: bool = False) -> bytes | None:
    """A form sends line breaks as CR LF, whatever was typed."""
    return None if is_null else text.replace("\r\n", "\n").encode()
