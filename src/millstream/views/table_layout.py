"""Which column of a table holds which part of a view's rows. Pure.

Structs are laid flat: the column `window` of a frame, a struct of start and end, is kept in
`window.start` and `window.end`, so that each can be compared, sorted and part of the key. Outside
the key a struct may be null: then `window` itself is a column, 1 or null. Arrays and maps are one
text of JSON. How each value is kept is each store's own (`stores/sqlite/values.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millstream.base.changes import CHANGE, ORDER
from millstream.base.errors import Rejected
from millstream.base.schema import (
    INTEGER_BITS,
    DataType,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)
from millstream.schemas.arrow_types import nullable_arrow_schema, schema_from_arrow
from millstream.schemas.compatibility import changes_against

if TYPE_CHECKING:
    import pyarrow as pa

KEPT_AS = {
    Scalar.BOOLEAN: "INTEGER",
    Scalar.FLOAT: "REAL",
    Scalar.DOUBLE: "REAL",
    Scalar.STRING: "TEXT",
    Scalar.BINARY: "BLOB",
    Scalar.DATE: "INTEGER",
    Scalar.TIMESTAMP: "INTEGER",
    Scalar.TIMESTAMP_NTZ: "INTEGER",
} | dict.fromkeys(INTEGER_BITS, "INTEGER")


class BadView(Rejected):
    """A view that cannot be kept as it is declared."""


class ChangedView(Rejected):
    def __init__(self, *, view: str, changes: Sequence[object]) -> None:
        facts = "; ".join(map(str, changes))
        super().__init__(f"view {view} is kept with other columns: {facts}. Or rebuild the view")
        self.view, self.changes = view, changes


class NullKey(Rejected):
    def __init__(self, *, view: str, key: tuple[str, ...], rows: int) -> None:
        super().__init__(
            f"view {view}: {rows} rows have no key ({', '.join(key)} is null), and would replace "
            "one another. Filter them out, or give them a value with coalesce"
        )
        self.view, self.key, self.rows = view, key, rows


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column of the table: a value that is no struct, or whether a struct is there."""

    path: tuple[str, ...]
    type: DataType
    in_key: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def quoted(self) -> str:
        return quoted(self.name)

    @property
    def says_presence(self) -> bool:
        return isinstance(self.type, Struct)

    @property
    def kept_as(self) -> str:
        """SQLite's type. Decimals, arrays and maps are text."""
        if self.says_presence:
            return "INTEGER"
        return KEPT_AS[self.type] if isinstance(self.type, Scalar) else "TEXT"


@dataclass(frozen=True)
class TableLayout:
    """The table of a view with these columns and this key; the key's columns come first."""

    view: str
    schema: Schema
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.key:
            raise BadView(f"view {self.view} has no key: say which columns name a row")
        for name in self.key:
            self._require_key_column(name)
        seen: set[str] = set()
        for column in self.columns:
            if column.name.lower() in seen:
                raise BadView(f"view {self.view}: two columns are named {column.name}: rename one")
            seen.add(column.name.lower())

    def _require_key_column(self, name: str) -> None:
        found = self.schema.field(name)
        if found is None:
            known = ", ".join(field.name for field in self.schema)
            raise BadView(f"view {self.view}: the key {name} is none of its columns ({known})")
        if has_map(found.type):
            raise BadView(f"view {self.view}: the key {name} is or has a map, which has no order")

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The key's, in its order, then the others."""
        rest = tuple(field for field in self.schema if field.name not in self.key)
        return self.key_schema.fields + rest

    @cached_property
    def key_schema(self) -> Struct:
        named = {field.name: field for field in self.schema}
        return Struct(tuple(named[name] for name in self.key))

    @cached_property
    def columns(self) -> tuple[StoredColumn, ...]:
        return tuple(
            column
            for field in self.fields
            for column in _columns((field.name,), field.type, in_key=field.name in self.key)
        )

    @cached_property
    def key_columns(self) -> tuple[StoredColumn, ...]:
        return tuple(column for column in self.columns if column.in_key)

    def column(self, name: str) -> StoredColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def view_layout(view: str, columns: Schema, key: tuple[str, ...]) -> TableLayout:
    """The layout for a frame with these columns; what marks changes is not kept.

    Everything may be null, at every depth: what a frame says of that changes with its plan.
    """
    own = tuple(field for field in columns if field.name not in (CHANGE, ORDER))
    if not own:
        raise BadView(f"view {view} has no columns of its own")
    return TableLayout(view, schema_from_arrow(nullable_arrow_schema(Struct(own))), key)


def _columns(path: tuple[str, ...], kind: DataType, *, in_key: bool) -> Iterator[StoredColumn]:
    if not isinstance(kind, Struct):
        yield StoredColumn(path, kind, in_key)
        return
    if not in_key:
        yield StoredColumn(path, kind)
    for field in kind:
        yield from _columns((*path, field.name), field.type, in_key=in_key)


def grown_layout(kept: TableLayout, wanted: TableLayout) -> TableLayout:
    """`wanted`, if rows that are kept can be read so: columns may be added, types widened; those
    of the key only as far as a row is found by the same key."""
    if kept.key != wanted.key:
        was, now = ", ".join(kept.key), ", ".join(wanted.key)
        raise ChangedView(view=kept.view, changes=[f"its key was {was} and is {now}"])
    changes = [
        *changes_against(kept.schema, wanted.schema),
        *moved_parts(kept.schema, wanted.schema),
    ] or list(_other_keys(kept, wanted))
    if changes:
        raise ChangedView(view=kept.view, changes=changes)
    return wanted


def _other_keys(kept: TableLayout, wanted: TableLayout) -> Iterator[str]:
    for was, now in zip(kept.key_schema, wanted.key_schema, strict=True):
        if not finds_the_same(was.type, now.type):
            yield (
                f"its key `{was.name}` was {was.type} and is {now.type}: rows would not be found "
                "by it; keep the type"
            )


def finds_the_same(kept: DataType, wanted: DataType) -> bool:
    """Whether every store keeps equal keys of these types alike: as text, bytes and columns."""
    match kept, wanted:
        case Struct(), Struct():
            pairs = zip(kept, wanted, strict=False)
            return len(kept.fields) == len(wanted.fields) and all(
                was.name == now.name and finds_the_same(was.type, now.type) for was, now in pairs
            )
        case ListOf(), ListOf():
            return finds_the_same(kept.element, wanted.element)
        case DecimalOf(), DecimalOf():
            return kept.scale == wanted.scale
    return kept == wanted or (kept in INTEGER_BITS and wanted in INTEGER_BITS)


def require_fitting(layout: TableLayout, columns: "pa.Schema") -> None:
    """Refuse a batch whose columns are not those that its job has claimed the view with."""
    found = view_layout(layout.view, schema_from_arrow(columns), layout.key)
    differing = changes_against(found.schema, layout.schema)
    if differing or len(found.schema.fields) != len(layout.schema.fields):
        own = ", ".join(field.name for field in found.schema)
        raise ChangedView(view=layout.view, changes=differing or [f"now {own}"])


def row_nesting(
    layout: TableLayout, reader_of: Callable[[StoredColumn], Callable[[Any], Any]]
) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """What makes a row, nested as the view's columns are, of a table's values.

    `reader_of` says how a store's value of a column is read.
    """
    readers = [reader_of(column) for column in layout.columns]
    order = [field.name for field in layout.schema]

    def read(stored: Sequence[Any]) -> dict[str, Any]:
        values = iter([of(value) for of, value in zip(readers, stored, strict=True)])
        row = {
            field.name: _nested(field.type, values, in_key=field.name in layout.key)
            for field in layout.fields
        }
        return {name: row[name] for name in order}

    return read


def _nested(kind: DataType, values: Iterator[Any], *, in_key: bool) -> Any:
    """Takes from `values` what belongs to it, in the order of the layout's columns."""
    if not isinstance(kind, Struct):
        return next(values)
    here = in_key or next(values)
    found = {field.name: _nested(field.type, values, in_key=in_key) for field in kind}
    return found if here else None


def moved_parts(kept: DataType, wanted: DataType, path: str = "") -> Iterator[str]:
    """Structs in arrays and maps are lists, whose parts have no name: new ones go to the end."""
    match kept, wanted:
        case Struct(), Struct():
            was, now = ([field.name for field in one] for one in (kept, wanted))
            if "[]" in path and now[: len(was)] != was:
                yield f"the parts of `{path}` were {', '.join(was)} and are {', '.join(now)}"
            for field in kept:
                if (same := wanted.field(field.name)) is not None:
                    within = f"{path}.{field.name}" if path else field.name
                    yield from moved_parts(field.type, same.type, within)
        case ListOf(), ListOf():
            yield from moved_parts(kept.element, wanted.element, f"{path}[]")
        case MapOf(), MapOf():
            yield from moved_parts(kept.value, wanted.value, f"{path}[]")


def has_map(kind: DataType) -> bool:
    match kind:
        case MapOf():
            return True
        case ListOf(element, _):
            return has_map(element)
        case Struct():
            return any(has_map(field.type) for field in kind)
    return False


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
