"""Keys, values and headers of records as text, and back from what a form has. Pure.

Bytes that are UTF-8 are text; JSON is set out in lines; all else is shown in hexadecimal.
"""

import json
from collections.abc import Sequence
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
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


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
    texts = [record.key, record.value, *(value for _, value in record.headers)]
    names = any(needle in name.casefold() for name, _ in record.headers)
    return names or any(
        needle in text.decode("utf-8", "replace").casefold() for text in texts if text is not None
    )


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


def sizes_of(records: Sequence[RecordSeen]) -> int:
    return sum(len(one.key or b"") + len(one.value or b"") for one in records)
