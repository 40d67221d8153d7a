"""Places in a partition as people write them: an offset, a time, "1h ago", the last 10.

Pure: text and numbers in, numbers out. Asking the cluster where a time is belongs to `cluster.py`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.base.quantity import parse_duration_ms


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that is still kept."""


@dataclass(frozen=True, slots=True)
class Latest:
    """After the last record."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of that time or later."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Last:
    """`count` records before the end of each partition."""

    count: int


@dataclass(frozen=True, slots=True)
class Shift:
    """Relative to the committed offset."""

    by: int


Position = Earliest | Latest | AtOffset | AtTime | Last | Shift

WORDS: dict[str, Position] = {"earliest": Earliest(), "latest": Latest()}

EXAMPLES: dict[type[Position], str] = {
    Earliest: "earliest",
    Latest: "latest",
    AtOffset: "an offset (42)",
    AtTime: 'a time ("1h ago", 2026-07-01, 2026-07-01T12:00Z)',
    Last: "-N for the last N",
    Shift: "shift:+N or shift:-N",
}


class BadPosition(Rejected):
    def __init__(self, *, option: str, text: str, allowed: tuple[type[Position], ...]) -> None:
        examples = ", ".join(EXAMPLES[kind] for kind in allowed)
        super().__init__(f"{option}: cannot read {text!r}. Give one of: {examples}")
        self.option, self.text = option, text


def parse_position(
    text: str, *, option: str, allowed: tuple[type[Position], ...], now_ms: int
) -> Position:
    try:
        position = _parse(text.strip(), now_ms)
    except ValueError:
        raise BadPosition(option=option, text=text, allowed=allowed) from None
    if not isinstance(position, allowed):
        raise BadPosition(option=option, text=text, allowed=allowed)
    return position


def _parse(text: str, now_ms: int) -> Position:
    if text in WORDS:
        return WORDS[text]
    if re.fullmatch(r"\d+", text):
        return AtOffset(int(text))
    if re.fullmatch(r"-\d+", text):
        return Last(-int(text))
    if shift := re.fullmatch(r"shift:([+-]?\d+)", text):
        return Shift(int(shift[1]))
    return AtTime(parse_time_ms(text, now_ms=now_ms))


def parse_time_ms(text: str, *, now_ms: int) -> int:
    """ISO 8601 (local time unless it names a zone), or a duration before now: "1h ago", "1h"."""
    ago = re.fullmatch(r"(.*\d\s*[a-z]+)(?:\s+ago)?", text)
    if ago and not re.match(r"\d{4}-", text):
        return now_ms - parse_duration_ms(ago[1])
    return parse_iso_time_ms(text)


def parse_iso_time_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def format_time_ms(time_ms: int) -> str:
    """UTC to the millisecond: 2026-07-01T12:00:00.000Z."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def resolve(
    position: Position, *, available: OffsetRange, committed: int | None, at_time: int | None
) -> int:
    """The offset that `position` means, within what the partition has.

    `at_time` is the cluster's answer for an `AtTime`: None when no record is that late.
    """
    match position:
        case Earliest():
            offset = available.start
        case Latest():
            offset = available.end
        case AtOffset():
            offset = position.offset
        case AtTime():
            offset = available.end if at_time is None else at_time
        case Last():
            offset = available.end - position.count
        case Shift():
            # A group that never committed starts at the earliest record: shift from there.
            offset = (available.start if committed is None else committed) + position.by
    return max(available.start, min(offset, available.end))
