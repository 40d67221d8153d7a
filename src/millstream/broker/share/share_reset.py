"""Where a share group starts in a partition that it has no state of: `share.auto.offset.reset`.

earliest | latest | by_duration:P7D        an ISO 8601 duration back from now (KIP-1106)
"""

import re
from dataclasses import dataclass
from enum import Enum

BY_DURATION = "by_duration:"
DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


class ResetTo(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "by_duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReset:
    """`age_ms` counts for TIME: the first record that is no older."""

    to: ResetTo
    age_ms: int = 0


def read_share_reset(text: str) -> ShareReset | None:
    """None: it says nothing that is known."""
    if text.startswith(BY_DURATION):
        age_ms = _duration_ms(text.removeprefix(BY_DURATION))
        return None if age_ms is None else ShareReset(to=ResetTo.TIME, age_ms=age_ms)
    by_name = {one.value: ShareReset(to=one) for one in (ResetTo.EARLIEST, ResetTo.LATEST)}
    return by_name.get(text)


def _duration_ms(text: str) -> int | None:
    match = DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    whole_ms = ((days * 24 + hours) * 60 + minutes) * 60_000
    return whole_ms + int(float(match["seconds"] or 0) * 1000)
