"""What readers ask of a view, in SQLite's words: texts that name columns of the view alone. Pure.

Every value is a parameter, as `values.py` keeps it. A null in a key is a value there, which
SQLite puts after all others, as we do; but a BINARY's null, a text, it would put before blobs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from millstream.base.schema import DecimalOf, Scalar
from millstream.views.conditions import Condition, Order, conditions_of, orders_of, text_after
from millstream.views.keys import fitted_bound, key_fitter
from millstream.views.store import Row
from millstream.views.stores.sqlite.values import (
    Stored,
    null_of,
    row_reader,
    stored_key,
    stored_value,
)
from millstream.views.table_layout import StoredColumn, TableLayout

# A collation that compares decimals, which are kept as text, by value.
BY_VALUE = "BY_VALUE"

# A part of a statement, and its parameters.
Part = tuple[str, list[Stored]]
# What is compared, and with what.
Term = tuple[str, Stored]


class Questions:
    """Those to one table, or to a query in parentheses, that has the columns of a layout."""

    def __init__(self, layout: TableLayout, source: str) -> None:
        self.layout, self.source = layout, source
        names = ", ".join(column.quoted for column in layout.columns)
        self.select = f"SELECT {names} FROM {source}"
        self.read: Callable[[Sequence[Stored]], Row] = row_reader(layout)

    @cached_property
    def by_key(self) -> str:
        conditions = " AND ".join(f"{column.quoted} = ?" for column in self.layout.key_columns)
        return f"{self.select} WHERE {conditions}"

    @cached_property
    def _fit_key(self) -> Callable[[Any], Row]:
        return key_fitter(self.layout)

    def key_values(self, given: Any) -> list[Stored]:
        return stored_key(self.layout, self._fit_key(given))

    def in_range(self, first: Any, last: Any, limit: int | None) -> Part:
        parts = [
            _bound(fitted_bound(self.layout, first), ">="),
            _bound(fitted_bound(self.layout, last), "<="),
        ]
        return self._selected([part for part in parts if part[0]], orders_of(self.layout), limit)

    def scanned(
        self, where: Mapping[str, Any] | None, order_by: str | Sequence[str], limit: int | None
    ) -> Part:
        parts = [condition_sql(condition) for condition in conditions_of(self.layout, where)]
        return self._selected(parts, orders_of(self.layout, order_by), limit)

    def _selected(self, parts: Sequence[Part], orders: Sequence[Order], limit: int | None) -> Part:
        where = f" WHERE {' AND '.join(text for text, _ in parts)}" if parts else ""
        values = [value for _, some in parts for value in some]
        order = ", ".join(term for one in orders for term in order_terms(one))
        # -1 is no limit.
        return f"{self.select}{where} ORDER BY {order} LIMIT ?", [
            *values,
            -1 if limit is None else limit,
        ]


def condition_sql(condition: Condition) -> Part:
    column, operator = condition.column, condition.operator
    if operator == "in":
        return _is_one_of(column, condition.value)
    if operator == "starts with":
        return _starts_with(column, condition.value)
    stored = stored_value(column, condition.value)
    if operator in ("=", "!="):
        return f"{column.quoted} {'IS' if operator == '=' else 'IS NOT'} ?", [stored]
    return _unless_null(column, f"{_comparable(column)} {operator} ?", [stored])


def _unless_null(column: StoredColumn, text: str, values: list[Stored]) -> Part:
    """In a key null is kept as a value, which compares."""
    if not column.in_key:
        return text, values
    return f"({text} AND {column.quoted} != ?)", [*values, null_of(column)]


def _is_one_of(column: StoredColumn, given: Sequence[Any]) -> Part:
    stored = [stored_value(column, value) for value in given]
    values: list[Stored] = [value for value in stored if value is not None]
    text = f"{column.quoted} IN ({', '.join('?' for _ in values)})"
    return (f"({text} OR {column.quoted} IS NULL)" if None in stored else text), values


def _starts_with(column: StoredColumn, prefix: str) -> Part:
    """As a range, which an index answers."""
    end = text_after(prefix)
    if end is None:
        return _unless_null(column, f"{column.quoted} >= ?", [prefix])
    return f"({column.quoted} >= ? AND {column.quoted} < ?)", [prefix, end]


def _bound(bound: Sequence[tuple[StoredColumn, Any]], sign: str) -> Part:
    terms = [term for column, value in bound for term in _bound_terms(column, value)]
    if not terms:
        return "", []
    marks = ", ".join("?" for _ in terms)
    return f"({', '.join(text for text, _ in terms)}) {sign} ({marks})", [one for _, one in terms]


def _bound_terms(column: StoredColumn, value: Any) -> list[Term]:
    term = (_comparable(column), stored_value(column, value))
    if _has_null_first(column):
        return [(_is_null(column), int(value is None)), term]
    return [term]


def order_terms(order: Order) -> list[str]:
    column = order.column
    direction = " DESC" if order.is_descending else ""
    term = f"{_comparable(column)}{direction}"
    if _has_null_first(column):
        return [f"{_is_null(column)}{direction}", term]
    if column.in_key:
        return [term]
    return [f"{term} NULLS {'FIRST' if order.is_descending else 'LAST'}"]


def _has_null_first(column: StoredColumn) -> bool:
    return column.in_key and column.type is Scalar.BINARY


def _is_null(column: StoredColumn) -> str:
    return f"(typeof({column.quoted}) = 'text')"


def _comparable(column: StoredColumn) -> str:
    """Decimals are text, whose order is another one."""
    collation = f" COLLATE {BY_VALUE}" if isinstance(column.type, DecimalOf) else ""
    return column.quoted + collation
