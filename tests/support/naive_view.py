"""A view as a list of rows, and questions that a store gets wrong easily, for all to answer."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from millstream.base.schema import Schema
from millstream.views.conditions import are_met, conditions_of, rank, value_at
from millstream.views.store import Row
from millstream.views.table_layout import view_layout

NULL = rank(None)


class NaiveView:
    """All rows in a list, in the order of the key; those without a key are left out."""

    def __init__(self, schema: Schema, key: Sequence[str], found: Sequence[Row]) -> None:
        self.layout = view_layout("v", schema, tuple(key))
        self.columns = self.layout.key_columns
        named = {self.ranks(row): row for row in found if set(self.ranks(row)) != {NULL}}
        self.rows = sorted(named.values(), key=self.ranks)

    def ranks(self, row: Row) -> tuple[Any, ...]:
        return tuple(rank_at(column.path, row) for column in self.columns)

    def scan(
        self,
        where: Mapping[str, Any] | None = None,
        order_by: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        asked = conditions_of(self.layout, where)
        found = [row for row in self.rows if are_met(asked, row)]
        for name in reversed(order_by):
            path = name.removeprefix("-").split(".")
            found.sort(key=partial(rank_at, path), reverse=name.startswith("-"))
        return found[:limit]

    def range(self, first: Sequence[Any], last: Sequence[Any]) -> list[Row]:
        """Of bounds that are laid flat."""
        low, high = (tuple(map(rank, bound)) for bound in (first, last))
        return [
            row
            for row in self.rows
            if low <= self.ranks(row)[: len(low)] and self.ranks(row)[: len(high)] <= high
        ]


def rank_at(path: Sequence[str], row: Row) -> Any:
    return rank(value_at(row, path))


def shown(found: Sequence[Row]) -> list[str]:
    """NaN equals itself, and times are the same in any spelling of UTC."""
    return [repr([rank(value) for value in _flat(row)]) for row in found]


def _flat(row: Any) -> Iterator[Any]:
    if isinstance(row, dict):
        for name in sorted(row):
            yield name
            yield from _flat(row[name])
    else:
        yield row.timestamp() if isinstance(row, datetime) else row


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
NAN, INFINITE = float("nan"), float("inf")
# The key is (place, text): a number that may be negative, and a text that may be null.
DDL = """
    place BIGINT, text STRING, x DOUBLE, price DECIMAL(8, 2), blob BINARY,
    span STRUCT<start: TIMESTAMP, end: TIMESTAMP>
"""
NAMES = ("place", "text", "x", "price", "blob", "span")
ROWS: list[tuple[Any, ...]] = [
    (-2, "a", 1.5, Decimal("-10.00"), b"", {"start": NOON, "end": LATER}),
    (-2, "b", NAN, Decimal("-9.50"), b"\x00", {"start": LATER, "end": None}),
    (-2, None, -INFINITE, Decimal("0.00"), b"\xff", None),
    (1, "", INFINITE, Decimal("9.50"), None, None),
    (1, "A", None, Decimal("10.00"), b"a", {"start": None, "end": None}),
    (1, "Z", 0.0, None, b"ab", {"start": NOON, "end": NOON}),
    (1, "a", -1.5, Decimal("100.00"), b"b", None),
    (1, "a%", 2.0, Decimal("1.00"), None, None),
    (1, "ab", 2.0, Decimal("1.00"), None, None),
    (1, "a_", 2.0, Decimal("1.00"), None, None),
    (1, "ä", 3.0, Decimal("2.00"), None, None),
    (1, "\U0001f42b", 3.0, Decimal("2.00"), None, None),
    (1, "\uffee", 4.0, None, None, None),
    (1, None, None, None, None, None),
    (10, "a' OR 1=1 --", 5.0, Decimal("3.00"), None, None),
    (None, "a", 6.0, Decimal("4.00"), None, None),
]
CONDITIONS: list[dict[str, Any]] = [
    {"text": None},
    {"text !=": None},
    {"text": "a"},
    {"text !=": "a"},
    {"text": "a' OR 1=1 --"},
    {"text >": "a"},
    {"text <=": "a"},
    {"text <": "a", "place": 1},
    {"place >=": 1},
    {"place <": 1},
    {"place": None},
    {"place in": [10, None]},
    {"text in": []},
    {"text in": ["a", "none"]},
    {"text in": [None, "ä"]},
    {"text starts with": ""},
    {"text starts with": "a"},
    {"text starts with": "a%"},
    {"text starts with": "a_"},
    {"text starts with": "\U0001f42b"},
    {"x": NAN},
    {"x !=": NAN},
    {"x >": 2.0},
    {"x <": NAN},
    {"x <=": INFINITE},
    {"x in": [NAN, None, 0.0]},
    {"price >": Decimal("9.5")},
    {"price <=": 2},
    {"price": Decimal("1")},
    {"price": None},
    {"blob <": b"ab"},
    {"blob": b""},
    {"span.start": NOON},
    {"span.start": None},
    {"span.end >=": NOON},
]
SCANS: list[dict[str, Any]] = [
    {},
    {"limit": 0},
    {"limit": 3},
    {"order_by": ["-place"], "limit": 5},
    {"order_by": ["text"]},
    {"order_by": ["-text", "-place"]},
    {"order_by": ["x", "-price"]},
    {"order_by": ["-x"]},
    {"order_by": ["price"]},
    {"order_by": ["-price", "text"], "limit": 7},
    {"order_by": ["blob"]},
    {"order_by": ["-span.start", "span.end"]},
    *({"where": where} for where in CONDITIONS),
]
RANGES: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
    ((), ()),
    ((1,), (1,)),
    ((1, "a"), (1, "b")),
    ((1, "a"), ()),
    ((), (1, "a")),
    ((-2, "b"), (1, "")),
    ((1, None), (10,)),
    ((-2,), (-2, None)),
    ((1, "ä"), (1, None)),
    ((2,), (9,)),
    ((10,), (1,)),
    ((None,), ()),
]
