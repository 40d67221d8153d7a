"""Numbers, sizes, times and small curves as the pages show them. Pure.

What is not known is a dash. Times are UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.base.quantity import SECOND_MS, format_duration_roughly

UNKNOWN = "–"
THOUSANDS = ((10**3, "k"), (10**6, "M"), (10**9, "G"))
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
# Below this all digits are shown: they fit, and 9,950 tells more than 9.95k.
EXACT_BELOW = 10_000
# Points of a curve: more than it has pixels help nobody.
CURVE_POINTS_MAX = 120
CURVE_MARGIN = 1.5
# The first samples would be a curve of a few seconds, as wide as one of minutes.
CURVE_POINTS_MIN = 30


def count(number: int | float | None) -> str:
    """All digits."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def short(number: int | float | None) -> str:
    """Three digits or so: 812, 9,950, 12.4k, 3.1M."""
    if number is None:
        return UNKNOWN
    if abs(number) < EXACT_BELOW:
        return f"{number:,.0f}"
    for factor, unit in THOUSANDS:
        if abs(number) < 999.5 * factor:
            return f"{number / factor:.3g}{unit}"
    factor, unit = THOUSANDS[-1]
    return f"{number / factor:,.0f}{unit}"


def counted(number: int | None, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{short(round(per_second))}/s"


def size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return UNKNOWN
    for factor, unit in SIZES:
        if size_bytes >= factor:
            digits = 0 if size_bytes >= 100 * factor else 1
            return f"{size_bytes / factor:.{digits}f} {unit}"
    return f"{size_bytes} B"


def duration(duration_ms: int | float | None) -> str:
    if duration_ms is None:
        return UNKNOWN
    if duration_ms < SECOND_MS:
        return f"{duration_ms:.0f}ms"
    if duration_ms < 10 * SECOND_MS:
        return f"{duration_ms / SECOND_MS:.1f}s"
    return format_duration_roughly(round(duration_ms))


def ago(then_ms: int | None, now_ms: int) -> str:
    """Of a clock that may be ahead of ours."""
    if then_ms is None:
        return UNKNOWN
    past_ms = now_ms - then_ms
    return "now" if past_ms < SECOND_MS else f"{format_duration_roughly(past_ms)} ago"


def clock(at_ms: int | None) -> str:
    moment = _moment(at_ms)
    return (
        UNKNOWN if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
    )


def day_clock(at_ms: int | None, now_ms: int) -> str:
    """To the second on the same day; with the day, and to the minute, before that."""
    moment, now = _moment(at_ms), _moment(now_ms)
    if moment is None or now is None:
        return UNKNOWN
    is_same_day = moment.date() == now.date()
    return f"{moment:%H:%M:%S} UTC" if is_same_day else f"{moment:%Y-%m-%d %H:%M} UTC"


def iso(at_ms: int | None) -> str:
    moment = _moment(at_ms)
    return "" if moment is None else moment.isoformat(timespec="milliseconds")


def _moment(at_ms: int | None) -> datetime | None:
    """None also for a time that no calendar has: a record may say anything."""
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / SECOND_MS, UTC)
    except (OverflowError, ValueError, OSError):
        return None


# --- curves -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Paths of an SVG of `width` and `height`; both empty when there is nothing to draw."""

    width: int
    height: int
    line: str = ""
    area: str = ""
    peak: float = 0.0
    last: float | None = None


def curve(values: Sequence[float | None], *, width: int, height: int) -> Curve:
    """From 0 to the highest value. Where nothing is known, the line has a gap."""
    missing = max(0, CURVE_POINTS_MIN - len(values))
    points = thinned([*[None] * missing, *values], CURVE_POINTS_MAX)
    known = [value for value in points if value is not None]
    if len(known) < 2:
        return Curve(width=width, height=height, last=known[-1] if known else None)
    peak = max(known)
    step = width / (len(points) - 1)
    room = height - 2 * CURVE_MARGIN
    places: list[tuple[float, float] | None] = [
        None
        if value is None
        else (number * step, height - CURVE_MARGIN - (value / peak if peak > 0 else 0) * room)
        for number, value in enumerate(points)
    ]
    parts = _parts(places)
    return Curve(
        width=width,
        height=height,
        line=" ".join(map(_line, parts)),
        area=" ".join(_area(part, height) for part in parts),
        peak=peak,
        last=known[-1],
    )


def thinned(values: Sequence[float | None], limit: int) -> list[float | None]:
    """The highest of each few: a peak is what one looks for."""
    if len(values) <= limit:
        return list(values)
    each = -(-len(values) // limit)
    starts = range(0, len(values), each)
    return [_highest(values[start : start + each]) for start in starts]


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _parts(places: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is not None:
            parts[-1].append(place)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if len(part) > 1]


def _line(part: Sequence[tuple[float, float]]) -> str:
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in part)


def _area(part: Sequence[tuple[float, float]], height: int) -> str:
    (first, _), (last, _) = part[0], part[-1]
    return f"{_line(part)} L{last:.1f} {height} L{first:.1f} {height} Z"
