"""Keys as callers give them, checked against a view's columns. Pure; the same for every store.

"ada"                                    a key of one column
((start, end), "/home")                  of several, by place; one of them a window
{"url": "/home", "window": {...}}        the same, by name
("2026-07", ), ((start,),)               the bound of a range: the first parts of a key
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millstream.base.schema import DataType, Field, ListOf, Struct
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit
from millstream.views.conditions import fitted_value, value_at
from millstream.views.store import BadQuestion, Row
from millstream.views.table_layout import StoredColumn, TableLayout


def key_fitter(layout: TableLayout) -> Callable[[Any], Row]:
    """What makes a whole key, by name, its values as the view's columns want them."""
    fields = tuple(Field(field.name, field.type) for field in layout.key_schema)
    fit_row = row_fitter(Struct(fields), passes_over_extra=False)

    def fit(given: Any) -> Row:
        try:
            return fit_row(_named_key(layout, _by_place(layout, given)))
        except Unfit as error:
            raise BadQuestion(f"view {layout.view}: the key's {error}") from None

    return fit


def fitted_key(layout: TableLayout, given: Any) -> Row:
    return key_fitter(layout)(given)


def key_values(layout: TableLayout, key: Row) -> list[Any]:
    """One value for each column of the key, structs laid flat, of a key that was fitted."""
    return [value_at(key, column.path) for column in layout.key_columns]


def fitted_bound(layout: TableLayout, given: Any) -> list[tuple[StoredColumn, Any]]:
    """The first columns of the key and their values; none for None, which is no bound.

    The last part that is given may itself be the first parts of a struct.
    """
    if given is None:
        return []
    parts = _by_place(layout, given)
    if not 0 < len(parts) <= len(layout.key):
        raise _wrong_count(layout, parts, "or less")
    fields = layout.key_schema.fields[: len(parts)]
    values = [
        value
        for field, part in zip(fields, parts, strict=True)
        for value in _flat(field.type, part, is_last=field is fields[-1])
    ]
    bound = list(zip(layout.key_columns, values, strict=False))
    return [(column, _fitted(layout, column, value)) for column, value in bound]


def _fitted(layout: TableLayout, column: StoredColumn, value: Any) -> Any:
    if isinstance(column.type, ListOf):
        raise BadQuestion(f"view {layout.view}: {column.name} is an array, which has no order")
    return fitted_value(layout, column, value)


def _by_place(layout: TableLayout, given: Any) -> Sequence[Any]:
    parts = given if isinstance(given, tuple) else (given,)
    if len(parts) == 1 and isinstance(parts[0], Mapping):
        named = parts[0]
        first = layout.key[: len(named)]
        if named and set(named) == set(first):
            return [named[name] for name in first]
    return parts


def _named_key(layout: TableLayout, given: Sequence[Any]) -> Row:
    if len(given) != len(layout.key):
        raise _wrong_count(layout, given)
    parts = zip(layout.key_schema, given, strict=True)
    return {field.name: _named_struct(field.type, value) for field, value in parts}


def _wrong_count(layout: TableLayout, given: Sequence[Any], less: str = "") -> BadQuestion:
    wanted = f"{len(layout.key)} values {less}".rstrip()
    return BadQuestion(
        f"view {layout.view} is read by {', '.join(layout.key)}: {wanted}, not {len(given)}"
    )


def _named_struct(kind: DataType, value: Any) -> Any:
    """A struct may be given by place: a window as (start, end)."""
    if isinstance(kind, Struct) and isinstance(value, tuple | list):
        if len(value) != len(kind.fields):
            raise BadQuestion(f"{kind} has {len(kind.fields)} parts, {len(value)} are given")
        pairs = zip(kind, value, strict=True)
        return {field.name: _named_struct(field.type, part) for field, part in pairs}
    return value


def _flat(kind: DataType, value: Any, *, is_last: bool) -> Iterator[Any]:
    """The values of a part of a bound; the last part may end early."""
    if not isinstance(kind, Struct):
        yield value
        return
    parts = _parts_of(kind, value)
    if len(parts) != len(kind.fields) and not (is_last and 0 < len(parts) < len(kind.fields)):
        raise BadQuestion(f"{kind} has {len(kind.fields)} parts, {len(parts)} are given")
    for place, (field, part) in enumerate(zip(kind, parts, strict=False), 1):
        yield from _flat(field.type, part, is_last=is_last and place == len(parts))


def _parts_of(kind: Struct, value: Any) -> Sequence[Any]:
    if value is None:
        return [None] * len(kind.fields)
    if isinstance(value, tuple | list):
        return value
    first = kind.fields[: len(value)] if isinstance(value, Mapping) else ()
    if not first or set(value) != {field.name for field in first}:
        raise BadQuestion(f"{kind} is given as {value!r}: give its parts by place or by name")
    return [value[field.name] for field in first]
