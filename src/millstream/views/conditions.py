"""What a scan asks of rows, checked against a view's columns. Pure; the same for every store.

    where={"url": "/", "count >=": 5, "window.start <": noon, "user in": ["ada", "bob"],
           "url starts with": "/shop/"}
    order_by=["-count", "url"]

All conditions must hold. null equals null and nothing else; no comparison with it holds. In an
order, and among keys, a value comes before NaN, and NaN before null; text is in the order of its
code points; arrays have none, and where one is in a key each store puts it as it likes. Stores
translate a `Condition` into their own words, with `value` as a parameter, or ask `is_met` of rows
in Python.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from millstream.base.schema import DataType, Field, ListOf, MapOf, Scalar, Struct
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit
from millstream.views.store import BadQuestion
from millstream.views.table_layout import StoredColumn, TableLayout

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "starts with"]
COMPARISONS: tuple[Operator, ...] = ("<", "<=", ">", ">=")
# The longer first: `<=` ends with `=` too.
ENDINGS: tuple[Operator, ...] = ("!=", "<=", ">=", "=", "<", ">")
WORDS: tuple[Operator, ...] = ("in", "starts with")
# Of one question, in all its conditions: each is a parameter, and SQLite takes 32,766 of them.
VALUES_MAX = 10_000
SIGNS = frozenset("<>=!~")

Rank = tuple[Any, ...]
NAN_RANK, NULL_RANK = (1,), (2,)


@dataclass(frozen=True, slots=True)
class Condition:
    """`value` fits the column's type; of `in` it is a tuple of such. It may be null in these and
    in = and != alone."""

    column: StoredColumn
    operator: Operator
    value: Any

    def is_met(self, row: Mapping[str, Any]) -> bool:
        return MEETS[self.operator](value_at(row, self.column.path), self.value)


@dataclass(frozen=True, slots=True)
class Order:
    column: StoredColumn
    is_descending: bool = False


def conditions_of(layout: TableLayout, where: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    found = tuple(_condition(layout, text, value) for text, value in (where or {}).items())
    count = sum(len(one.value) if one.operator == "in" else 1 for one in found)
    if count > VALUES_MAX:
        raise BadQuestion(f"{count} values to compare with, {VALUES_MAX} at most: ask in parts")
    return found


def are_met(conditions: Iterable[Condition], row: Mapping[str, Any]) -> bool:
    return all(condition.is_met(row) for condition in conditions)


def orders_of(layout: TableLayout, order_by: str | Sequence[str] = ()) -> tuple[Order, ...]:
    """As it is asked, then by key: so that the order of rows is always the same."""
    named = [order_by] if isinstance(order_by, str) else list(order_by)
    asked = [_order(layout, name) for name in named]
    return (*asked, *(Order(column) for column in layout.key_columns))


def require_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise BadQuestion(f"limit is {limit!r}: a number of rows, or None for all")


# --- one condition


def _condition(layout: TableLayout, text: str, value: Any) -> Condition:
    name, operator = _parts(layout, text)
    column = named_column(layout, name)
    require_comparable(layout, column, operator)
    if operator == "in":
        return Condition(column, operator, _values_in(layout, column, value))
    fitted = fitted_value(layout, column, value)
    if fitted is None and operator not in ("=", "!="):
        raise BadQuestion(f"{column.name} {operator} null is never true: compare with a value")
    return Condition(column, operator, fitted)


def _parts(layout: TableLayout, text: str) -> tuple[str, Operator]:
    """A column may be named like a condition: what is a column's name whole is that column."""
    asked = text.strip()
    return (asked, "=") if layout.column(asked) is not None else split_condition(asked)


def split_condition(text: str) -> tuple[str, Operator]:
    """Column and operator, which is = if the text does not end with one.

    In time linear in the text, whatever it is: anybody may send it.
    """
    asked = text.strip()
    for sign in ENDINGS:
        column = asked.removesuffix(sign).rstrip()
        if asked.endswith(sign) and column:
            return column, sign
    for word in WORDS:
        parts = asked.rsplit(maxsplit=len(word.split()))
        if " ".join(parts[1:]).lower() == word:
            return parts[0], word
    return asked, "="


def _values_in(layout: TableLayout, column: StoredColumn, given: Any) -> tuple[Any, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise BadQuestion(f"{column.name} in {given!r}: give a list of values")
    return tuple(fitted_value(layout, column, value) for value in given)


def named_column(layout: TableLayout, name: str) -> StoredColumn:
    found = layout.column(name)
    if found is None or found.says_presence:
        known = ", ".join(one.name for one in layout.columns if not one.says_presence)
        told = f"view {layout.view} has no column {name} to compare: {known}"
        operators = ", ".join(MEETS)
        raise BadQuestion(f"{told}. Operators are {operators}" if set(name) & SIGNS else told)
    return found


def require_comparable(layout: TableLayout, column: StoredColumn, operator: str) -> None:
    if isinstance(column.type, MapOf):
        raise BadQuestion(f"view {layout.view}: {column.name} is a map, which has no comparison")
    if operator in COMPARISONS and isinstance(column.type, ListOf):
        raise BadQuestion(f"view {layout.view}: {column.name} is an array, which has no order")
    if operator == "starts with" and column.type is not Scalar.STRING:
        raise BadQuestion(f"view {layout.view}: {column.name} is {column.type}, and no text")


def fitted_value(layout: TableLayout, column: StoredColumn, value: Any) -> Any:
    fit = row_fitter(Struct((Field(column.name, column.type),)), passes_over_extra=False)
    try:
        return fit({column.name: value})[column.name]
    except Unfit as error:
        raise BadQuestion(f"view {layout.view}: {error}") from None


def _order(layout: TableLayout, name: str) -> Order:
    column = named_column(layout, name.removeprefix("-"))
    require_comparable(layout, column, "<")
    return Order(column, is_descending=name.startswith("-"))


# --- rows in Python


def value_at(row: Any, path: Sequence[str]) -> Any:
    for part in path:
        if row is None:
            return None
        row = row[part]
    return row


def rank(value: Any) -> Rank:
    """Puts values of one type into the order that is said above."""
    if value is None:
        return NULL_RANK
    if isinstance(value, float) and math.isnan(value):
        return NAN_RANK
    if isinstance(value, list | tuple):
        return (0, tuple(rank(one) for one in value))
    if isinstance(value, Mapping):
        return (0, tuple((name, rank(one)) for name, one in value.items()))
    return (0, value)


def is_ranked_by_value(kind: DataType) -> bool:
    """False for what only `rank` can put in order: stores have none for it."""
    return not isinstance(kind, ListOf | MapOf | Struct)


def text_after(prefix: str) -> str | None:
    """The least text that is after every text with this prefix; None if there is none.

    Code points 0xD800 to 0xDFFF are halves of pairs, and in no text.
    """
    kept = prefix.rstrip(chr(0x10FFFF))
    if not kept:
        return None
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if last == 0xD800 else last)


def _is_same(found: Any, value: Any) -> bool:
    return rank(found) == rank(value)


def _compared(holds: Callable[[Rank, Rank], bool]) -> Callable[[Any, Any], bool]:
    return lambda found, value: found is not None and holds(rank(found), rank(value))


MEETS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    "=": _is_same,
    "!=": lambda found, value: not _is_same(found, value),
    "<": _compared(lambda one, other: one < other),
    "<=": _compared(lambda one, other: one <= other),
    ">": _compared(lambda one, other: one > other),
    ">=": _compared(lambda one, other: one >= other),
    "in": lambda found, values: any(_is_same(found, value) for value in values),
    "starts with": lambda found, prefix: found is not None and found.startswith(prefix),
}
