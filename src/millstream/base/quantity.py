"""Sizes and durations, as people write them: "64MiB", "7d", "1h 30m"."""

import math
import re
from collections.abc import Iterator

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

SIZE_UNITS = {"TiB": TIB, "GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1}
DECIMAL_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
DURATION_UNITS = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "s": SECOND_MS, "ms": 1}

SIZE_FACTORS = {name.lower(): factor for name, factor in (SIZE_UNITS | DECIMAL_UNITS).items()}
DURATION_WORDS = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": HOUR_MS,
    "minute": MINUTE_MS,
    "second": SECOND_MS,
    "millisecond": 1,
}
DURATION_FACTORS = {
    **DURATION_UNITS,
    "w": 7 * DAY_MS,
    "min": MINUTE_MS,
    **DURATION_WORDS,
    **{f"{word}s": factor for word, factor in DURATION_WORDS.items()},
}

NUMBER_WITH_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def parse_size(text: str) -> int:
    """Bytes: "64MiB", "1.5GiB", "10MB" (decimal), or a plain number."""
    if re.fullmatch(r"\d+", text.strip()):
        return int(text)
    match = NUMBER_WITH_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in SIZE_FACTORS:
        raise ValueError(f"{text!r} is not a size")
    return _whole(float(match[1]) * SIZE_FACTORS[match[2].lower()])


def parse_duration_ms(text: str) -> int:
    """Milliseconds: "7d", "1h 30m", "10 minutes", "250ms", or a plain number."""
    if re.fullmatch(r"\d+", text.strip()):
        return int(text)
    total, position = 0.0, 0
    while match := NUMBER_WITH_UNIT.match(text, position):
        if match[2] not in DURATION_FACTORS:
            break
        total += float(match[1]) * DURATION_FACTORS[match[2]]
        position = match.end()
    if position == 0 or position != len(text):
        raise ValueError(f"{text!r} is not a duration")
    return _whole(total)


def format_size(size_bytes: int) -> str:
    """The exact value in its largest whole unit: `parse_size` reads it back."""
    for unit, factor in SIZE_UNITS.items():
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def format_whole_size(size_bytes: int) -> str:
    """For reading, not for parsing back: "18GiB", "512MiB", "40KiB"."""
    unit = GIB if size_bytes >= 10 * GIB else MIB if size_bytes >= MIB else KIB
    return format_size(size_bytes // unit * unit)


def format_duration_ms(duration_ms: int) -> str:
    """The exact value in its units, largest first: `parse_duration_ms` reads it back."""
    return " ".join(_duration_parts(duration_ms)) or "0ms"


def format_duration_roughly(duration_ms: int) -> str:
    """For reading, not for parsing back: the two largest units, "3h 12m"."""
    if duration_ms < SECOND_MS:
        return f"{duration_ms}ms"
    return " ".join(list(_duration_parts(duration_ms // SECOND_MS * SECOND_MS))[:2])


def _duration_parts(duration_ms: int) -> Iterator[str]:
    for unit, factor in DURATION_UNITS.items():
        count, duration_ms = divmod(duration_ms, factor)
        if count:
            yield f"{count}{unit}"


def _whole(number: float) -> int:
    if not math.isfinite(number) or number > INT64_MAX:
        raise ValueError(f"{number} is too large")
    return round(number)
