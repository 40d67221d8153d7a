"""The difference between the rows that a script expects and those it found, for people. Pure.

2 rows are there, 2 were expected:

    url  clicks
  = /a   1
  - /b   2        expected, and not there
  + /b   3        there, and not expected
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from millstream.processing.steps.moments import shown_moment
from millstream.processing.steps.results import Row

SHOWN_ROWS_MAX = 40
CELL_LENGTH_MAX = 60
NOTES = {"-": "expected, and not there", "+": "there, and not expected", "=": ""}


def difference(expected: Sequence[Row], found: Sequence[Row]) -> str:
    """Empty if the rows are the same, in any order."""
    marked, left = [], list(found)
    for row in expected:
        same = next((place for place, other in enumerate(left) if is_same(row, other)), None)
        marked.append(("-" if same is None else "=", row))
        if same is not None:
            del left[same]
    marked += [("+", row) for row in left]
    if all(mark == "=" for mark, _ in marked):
        return ""
    counts = f"{_rows(len(found))} there, {_rows(len(expected))} expected:"
    return "\n".join([counts, "", *_table(sorted(marked, key=_line_place))])


def is_same(one: Any, other: Any) -> bool:
    """Floats that differ by rounding are the same: sums come in any order."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _line_place(line: tuple[str, Row]) -> tuple[str, bool]:
    """Rows that differ in their last columns only stand together."""
    mark, row = line
    return str([shown(value) for value in row.values()]), mark == "+"


def _table(lines: Sequence[tuple[str, Row]]) -> list[str]:
    columns = list(dict.fromkeys(name for _, row in lines for name in row))
    if len(lines) > SHOWN_ROWS_MAX:
        lines = [line for line in lines if line[0] != "="]
    cells = [["", *columns, ""]]
    cells += [[mark, *(_cell(row, name) for name in columns), NOTES[mark]] for mark, row in lines]
    left_off = len(lines) - SHOWN_ROWS_MAX
    cells = cells[: 1 + SHOWN_ROWS_MAX]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown_lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    return shown_lines + [f"... and {_rows(left_off)} more"] * (left_off > 0)


def _cell(row: Row, name: str) -> str:
    text = shown(row[name]) if name in row else "(no such column)"
    return text if len(text) <= CELL_LENGTH_MAX else f"{text[: CELL_LENGTH_MAX - 3]}..."


def shown(value: Any) -> str:
    """As a script would write it."""
    if isinstance(value, datetime):
        return shown_moment(value)
    if isinstance(value, Mapping):
        if value.keys() == {"start", "end"}:
            return f"{shown(value['start'])} to {shown(value['end'])}"
        return "{" + ", ".join(f"{name}: {shown(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return "null" if value is None else str(value)
