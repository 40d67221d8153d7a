"""What a join of tables joins, by names; refused here if it cannot be. Only schemas are read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from millstream.base.errors import Rejected
from millstream.processing.operators.changelog_columns import (
    Names,
    columns_of,
    has_no_order,
    key_or_marked,
    quoted,
    require_columns,
)
from millstream.processing.operators.join_columns import RIGHT_SUFFIX, On
from millstream.processing.operators.table_join_state import LEFT, RIGHT

# Which sides keep rows without a match.
KEPT: Mapping[str, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
}


class BadTableJoin(Rejected):
    """A join of tables that cannot be as it is written."""


@dataclass(frozen=True)
class TableSide:
    """A table that is joined: its columns, what names a row, what it is joined by."""

    columns: tuple[StructField, ...]
    key: tuple[str, ...]
    on: tuple[str, ...]
    kept: bool

    @property
    def moves(self) -> bool:
        """Whether a row can come to have another join key."""
        return not set(self.on) <= set(self.key)


@dataclass(frozen=True)
class JoinPlan:
    """`types` are what the columns of the join are compared as; `key` names a row of the answer."""

    how: str
    left: TableSide
    right: TableSide
    types: tuple[DataType, ...]
    key: tuple[str, ...]

    @property
    def sides(self) -> tuple[TableSide, TableSide]:
        return self.left, self.right

    @property
    def moves(self) -> bool:
        """Whether a row of the answer can come to have another join key."""
        names_both = set(self.key) >= {*self.left.key, *self.right.key}
        return self.left.moves or self.right.moves or not names_both

    @property
    def merged(self) -> dict[str, DataType]:
        """Columns of the join that both sides call the same: the answer has them once."""
        named = zip(self.left.on, self.right.on, self.types, strict=True)
        return {name: type_ for name, other, type_ in named if name == other}

    @property
    def columns(self) -> list[StructField]:
        """Of the answer. All may be null: a delete has only its key."""
        right = [field for field in self.right.columns if field.name not in self.merged]
        return [
            StructField(field.name, self.merged.get(field.name, field.dataType))
            for field in (*self.left.columns, *right)
        ]


def named_apart(
    left: DataFrame, right: DataFrame, on: On, right_key: Names | None
) -> tuple[DataFrame, dict[str, str], Names | None]:
    """The right table, what it is joined by and its key, with no name that the left one has too.

    As in the other joins, a column whose name is taken gets `_right` behind it.
    """
    pairs = _pairs(on)
    merged = {name for name, other in pairs.items() if name == other}
    taken = {name.lower() for name in columns_of(left)}
    both = [name for name in columns_of(right) if name.lower() in taken and name not in merged]
    renamed = {name: name + RIGHT_SUFFIX for name in both}
    for name, given in renamed.items():
        if given.lower() in taken | {other.lower() for other in columns_of(right)}:
            raise BadTableJoin(f"both tables have {name}, and {given} is taken: rename one of them")
    key = (right_key,) if isinstance(right_key, str) else right_key
    return (
        right.withColumnsRenamed(renamed),
        {name: renamed.get(other, other) for name, other in pairs.items()},
        None if key is None else [renamed.get(name, name) for name in key],
    )


def plan_join(
    left: DataFrame,
    right: DataFrame,
    on: On,
    *,
    how: str,
    keys: tuple[Names | None, Names | None],
    key: Names | None,
) -> JoinPlan:
    if how not in KEPT:
        raise BadTableJoin(f"how={how!r}: one of {', '.join(KEPT)}")
    if left.isStreaming != right.isStreaming:
        raise BadTableJoin("one table is a stream and the other is static: read both alike")
    pairs = _pairs(on)
    sides = (
        _side(left, list(pairs), keys[LEFT], kept=KEPT[how][LEFT], name="left"),
        _side(right, list(pairs.values()), keys[RIGHT], kept=KEPT[how][RIGHT], name="right"),
    )
    if not pairs:
        raise BadTableJoin("on= names no column: tables are joined by at least one")
    types = _common_types(left, right, pairs)
    plan = JoinPlan(how, *sides, types, tuple(dict.fromkeys(sides[LEFT].key + sides[RIGHT].key)))
    return plan if key is None else _with_key(plan, key)


def _pairs(on: On) -> dict[str, str]:
    if isinstance(on, Mapping):
        return dict(on)
    names = [on] if isinstance(on, str) else list(on)
    return dict(zip(names, names, strict=True))


def _side(
    frame: DataFrame, on: Sequence[str], key: Names | None, *, kept: bool, name: str
) -> TableSide:
    return TableSide(
        columns=tuple(frame.schema[column] for column in columns_of(frame)),
        key=key_or_marked(frame, key, what=f"{name}_key"),
        on=require_columns(frame, on, what="on"),
        kept=kept,
    )


def _common_types(
    left: DataFrame, right: DataFrame, pairs: Mapping[str, str]
) -> tuple[DataType, ...]:
    """As Spark would compare them; a union of the two says how."""
    empty = [
        frame.sparkSession.createDataFrame([], StructType([frame.schema[name] for name in names]))
        for frame, names in ((left, pairs.keys()), (right, pairs.values()))
    ]
    types = tuple(field.dataType for field in empty[0].union(empty[1]).schema)
    for name, type_ in zip(pairs, types, strict=True):
        if has_no_order(type_):
            raise BadTableJoin(f"on={name!r} is {type_.simpleString()}: maps are not compared")
    return types


def _with_key(plan: JoinPlan, key: Names) -> JoinPlan:
    wanted = (key,) if isinstance(key, str) else tuple(key)
    known = [field.name for field in plan.columns]
    for name in wanted:
        if name not in known:
            raise BadTableJoin(f"key={name!r} is no column of the join ({', '.join(known)})")
    return JoinPlan(plan.how, plan.left, plan.right, plan.types, wanted)


def with_common_types(frame: DataFrame, plan: JoinPlan) -> DataFrame:
    """Columns that both sides share have one type."""
    changed = {
        name: quoted(name).cast(type_)
        for name, type_ in plan.merged.items()
        if frame.schema[name].dataType != type_
    }
    return frame.withColumns(changed) if changed else frame


def names(fields: Iterable[StructField]) -> list[str]:
    return [field.name for field in fields]
