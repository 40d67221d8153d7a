"""Questions to a view as statements of PostgreSQL. Pure.

Names are quoted, every value is a parameter. Texts compare by code point, whatever the database's
collation; null is the last of an order, as it is in the index of the key.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, cast

from millstream.base.schema import Scalar
from millstream.views.conditions import Condition, Order, conditions_of, orders_of
from millstream.views.keys import fitted_bound, key_fitter, key_values
from millstream.views.sql import Parameters
from millstream.views.store import BadQuestion, Row
from millstream.views.stores.postgres.batch import NullParts
from millstream.views.stores.postgres.catalog import words
from millstream.views.stores.postgres.driver import sql
from millstream.views.stores.postgres.values import parameter, row_reader, type_of
from millstream.views.table_layout import StoredColumn, TableLayout

# A statement with its parameters, or a part of one.
Part = tuple[sql.SQL | sql.Composed, list[Any]]
Bound = Sequence[tuple[StoredColumn, Any]]
# A key's place among those that are asked for, and its values.
AskedKey = tuple[int, tuple[Any, ...]]

PLACE = sql.Identifier("_millstream_place")

# What a ? or a $name in SQL may hide in: texts, names, comments, texts between $tags$.
WORDS = re.compile(
    r"""
    (?P<other> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
             | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | \?\? )
    | (?P<mark> \? ) | \$(?P<name> [A-Za-z_]\w* )
    """,
    re.VERBOSE | re.DOTALL,
)


class Questions:
    """What can be asked of one generation's table."""

    def __init__(self, layout: TableLayout, table: sql.Identifier) -> None:
        self.layout, self.table = layout, table
        self.values = sql.SQL(", ").join(map(_value, layout.columns))
        self.count = sql.SQL("SELECT count(*) FROM {}").format(table)
        self.read: Callable[[Sequence[Any]], Row] = row_reader(layout)
        self._by_key: dict[NullParts, bytes] = {}

    @cached_property
    def fit_key(self) -> Callable[[Any], Row]:
        return key_fitter(self.layout)

    def asked_keys(self, keys: Sequence[Any]) -> dict[NullParts, list[AskedKey]]:
        """Keys and their places, those together that are null in the same parts."""
        found: dict[NullParts, list[AskedKey]] = {}
        for place, given in enumerate(keys):
            values = self._key_values(given)
            parts = frozenset(part for part, value in enumerate(values) if value is None)
            if len(parts) < len(values):  # else it is no row's
                found.setdefault(parts, []).append((place, values))
        return found

    def _key_values(self, given: Any) -> tuple[Any, ...]:
        values = key_values(self.layout, self.fit_key(given))
        columns = self.layout.key_columns
        return tuple(parameter(*pair) for pair in zip(columns, values, strict=True))

    def by_key(self, null_parts: NullParts, keys: Sequence[AskedKey]) -> tuple[bytes, list[Any]]:
        """For rows of keys that are null in these parts, each with the place that its key has."""
        if null_parts not in self._by_key:
            self._by_key[null_parts] = self._key_statement(null_parts).as_bytes(None)
        columns = list(zip(*(values for _, values in keys), strict=True))
        given = [list(one) for part, one in enumerate(columns) if part not in null_parts]
        return self._by_key[null_parts], [[place for place, _ in keys], *given]

    def placed(self, answers: Iterable[Iterable[Sequence[Any]]], keys: int) -> list[Row | None]:
        """The rows that `by_key` found, where their keys are among so many."""
        found: list[Row | None] = [None] * keys
        for answer in answers:
            for place, *row in answer:
                found[place] = self.read(row)
        return found

    def _key_statement(self, null_parts: NullParts) -> sql.Composed:
        columns = list(enumerate(self.layout.key_columns))
        given = [column for part, column in columns if part not in null_parts]
        conditions = [
            sql.SQL("kept.{0} IS NULL" if part in null_parts else "kept.{0} = asked.{0}").format(
                _name(column)
            )
            for part, column in columns
        ]
        return sql.SQL("SELECT {}, {} FROM {} AS kept JOIN {} ON {}").format(
            PLACE, self.values, self.table, _asked(given), sql.SQL(" AND ").join(conditions)
        )

    def in_range(self, first: Any, last: Any, limit: int | None) -> Part:
        low, high = fitted_bound(self.layout, first), fitted_bound(self.layout, last)
        parts = [at_least(low)] if low else []
        parts += [at_most(high)] if high else []
        return self._selected([*parts, *_leading(low, high)], orders_of(self.layout), limit)

    def scanned(
        self, where: Mapping[str, Any] | None, order_by: str | Sequence[str], limit: int | None
    ) -> Part:
        parts = [condition_sql(condition) for condition in conditions_of(self.layout, where)]
        return self._selected(parts, orders_of(self.layout, order_by), limit)

    def _selected(self, parts: Sequence[Part], orders: Sequence[Order], limit: int | None) -> Part:
        order = sql.SQL(", ").join(map(order_sql, orders))
        where, values = all_of(parts)
        statement = sql.SQL("SELECT {} FROM {} AS kept WHERE {} ORDER BY {} LIMIT %s").format(
            self.values, self.table, where, order
        )
        return statement, [*values, limit]


def _value(column: StoredColumn) -> sql.Composed:
    """The cast makes another statement of it for another type: one that was prepared before the
    column grew is not used again. A real comes as a double, as Python has it: 0.1 as a real is
    another number."""
    kind = "double precision" if column.type is Scalar.FLOAT else type_of(column)
    return sql.SQL("kept.{}::{}").format(_name(column), words(kind))


def _asked(columns: Sequence[StoredColumn]) -> sql.Composed:
    """The keys that are asked for, as rows."""
    arrays = [words(f"%s::{type_of(column)}[]") for column in columns]
    return sql.SQL("unnest(%s::int[], {}) AS asked ({}, {})").format(
        sql.SQL(", ").join(arrays), PLACE, sql.SQL(", ").join(map(_name, columns))
    )


# --- conditions


def condition_sql(condition: Condition) -> Part:
    column, value = condition.column, condition.value
    match condition.operator:
        case "in":
            return _is_one_of(column, value)
        case "starts with":
            return _compared(column, "^@", value)
        case "=":
            return _equal(column, value)
        case "!=" if value is None:
            return sql.SQL("{} IS NOT NULL").format(_name(column)), []
        case "!=":
            return _compared(column, "IS DISTINCT FROM", value)
        case operator:
            return _compared(column, operator, value)


def all_of(parts: Sequence[Part]) -> Part:
    return _joined(" AND ", parts) if parts else (sql.SQL("true"), [])


def any_of(*parts: Part) -> Part:
    return _joined(" OR ", parts)


def _joined(between: str, parts: Sequence[Part]) -> Part:
    text = sql.SQL("({})").format(words(between).join(text for text, _ in parts))
    return text, [value for _, some in parts for value in some]


def _equal(column: StoredColumn, value: Any) -> Part:
    return _is_null(column) if value is None else _compared(column, "=", value)


def _is_null(column: StoredColumn) -> Part:
    return sql.SQL("{} IS NULL").format(_name(column)), []


def _compared(column: StoredColumn, operator: str, value: Any) -> Part:
    text = sql.SQL("{} {} %s::{}").format(
        comparable(column), words(operator), words(type_of(column))
    )
    return text, [parameter(column, value)]


def _is_one_of(column: StoredColumn, given: Sequence[Any]) -> Part:
    values = [parameter(column, value) for value in given if value is not None]
    text = sql.SQL("{} = ANY(%s::{}[])").format(comparable(column), words(type_of(column)))
    if None in given:
        return any_of((text, [values]), _is_null(column))
    return text, [values]


def order_sql(order: Order) -> sql.Composed:
    """In a descending order null is the first, as PostgreSQL has it."""
    direction = sql.SQL(" DESC" if order.is_descending else "")
    return comparable(order.column) + direction


def comparable(column: StoredColumn) -> sql.Composed:
    collation = sql.SQL(' COLLATE "C"' if column.type is Scalar.STRING else "")
    return sql.SQL("kept.{}{}").format(_name(column), collation)


def _name(column: StoredColumn) -> sql.Identifier:
    """In a statement that has parameters: a % would begin one."""
    return sql.Identifier(column.name.replace("%", "%%"))


# --- bounds of a range, in which null is after every value


def at_least(bound: Bound) -> Part:
    return reduce(_then_at_least, reversed(bound), cast(Part | None, None)) or all_of([])


def _then_at_least(rest: Part | None, first: tuple[StoredColumn, Any]) -> Part:
    column, value = first
    same = _equal(column, value)
    within = all_of([same, rest] if rest else [same])
    if value is None:
        return within
    return any_of(_compared(column, ">", value), _is_null(column), within)


def at_most(bound: Bound) -> Part:
    return reduce(_then_at_most, reversed(bound), cast(Part | None, None)) or all_of([])


def _then_at_most(rest: Part | None, first: tuple[StoredColumn, Any]) -> Part:
    column, value = first
    same = _equal(column, value)
    within = all_of([same, rest] if rest else [same])
    if value is None:
        return any_of((sql.SQL("{} IS NOT NULL").format(_name(column)), []), within)
    return any_of(_compared(column, "<", value), within)


def _leading(low: Bound, high: Bound) -> list[Part]:
    """What follows from the bounds for the key's first column, said so that an index answers it."""
    found = []
    if high and high[0][1] is not None:
        found.append(_compared(high[0][0], "<=", high[0][1]))
        if low and low[0][1] is not None:
            found.append(_compared(low[0][0], ">=", low[0][1]))
    return found


# --- SQL of other people


@dataclass(frozen=True, slots=True)
class OwnSql:
    """A statement with PostgreSQL's own marks for its parameters: $1, $2, ..."""

    text: str
    values: list[Any]


def own_sql(text: str, params: Parameters) -> OwnSql:
    """Each ? is the next parameter, or each $name the one of this name; ?? is the operator ?."""
    named = isinstance(params, Mapping)
    values = list(params.values()) if isinstance(params, Mapping) else list(params)
    places = {name: place for place, name in enumerate(params, 1)} if named else {}
    marks = iter(range(1, len(values) + 1))

    def mark(found: re.Match[str]) -> str:
        if found["other"] is not None:
            return "?" if found["other"] == "??" else found["other"]
        place = places.get(found["name"]) if found["name"] else next(marks, None)
        if place is None or (named and found["mark"]):
            raise BadQuestion(f"SQL: {found[0]} has no parameter ({len(values)} are given)")
        return f"${place}"

    return OwnSql(WORDS.sub(mark, text), values)
