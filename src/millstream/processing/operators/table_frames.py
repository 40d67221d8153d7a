"""Frames of tables as the rules of `table_plan.py` see them: the shell around them.

Reads the analysed plan of a frame from its top down to the tables in it, each of which is marked
(changelog_columns.py). Selections that left `_change` and `_order` out get them again, and a filter
becomes one that deletes: Spark's plan is made again with the same numbers of columns. Every
operator of ours does this with the frames that it is given, and a job with its result, so what
lies below a mark is proven already. Through Spark's Java objects, pinned with its version.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, ORDER
from millstream.processing.operators.changelog_columns import (
    BY_VALUE,
    CHANGE_MARK,
    KEY_MARK,
    ROWS_MARK,
    BadChangelog,
    Names,
    columns_of,
    key_of,
    key_or_marked,
    mark_key,
)
from millstream.processing.operators.row_filter import rows_that_meet
from millstream.processing.operators.table_plan import (
    ALLOWED,
    Judged,
    Made,
    NotOnTables,
    Step,
    TableChanges,
    is_allowed,
    judge,
    only_of_key,
    refusal,
    require_lasting,
)

# Casts that make no two keys the same.
INTEGERS = ("byte", "short", "integer", "long")
TO_TEXT = (*INTEGERS, "date", "boolean")
SHARED = (
    "one row became several, which share its key. Write changelog.upserting(frame, key=[the key, "
    "and what tells them apart]) first"
)


@dataclass(frozen=True)
class Carried:
    """A frame with all that its changes need. `table` is None for rows that only come."""

    frame: DataFrame
    table: TableChanges | None
    numbers: dict[str, int]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that name a row, by the names of the table if they are there."""
        if self.table is None or self.table.key is None:
            return key_of(self.frame)
        wanted = key_of(self.frame)
        names = {number: name for name, number in reversed(self.numbers.items())}
        names |= {self.numbers[name]: name for name in wanted}
        held = [sorted(part, key=lambda one: names[one] not in wanted) for part in self.table.key]
        return tuple(names[part[0]] for part in held) if all(held) else ()

    def is_named_by(self, columns: Sequence[str]) -> bool:
        assert self.table is not None
        return self.table.is_named_by({self.numbers[name] for name in columns})

    def is_shared(self, columns: Sequence[str]) -> bool:
        assert self.table is not None
        return self.table.is_shared({self.numbers[name] for name in columns})


def carry(frame: DataFrame) -> Carried:
    """The frame, with the changes of its table carried to its end; refused if they cannot be."""
    root = _analyzed(frame)
    walked = _walk(root, frame.sparkSession)
    if walked.table is not None and walked.java is not root:
        frame = _frame(walked.java, frame.sparkSession)
    numbers = {one.name(): one.exprId().id() for one in reversed(_items(walked.java.output()))}
    carried = Carried(frame, walked.table, numbers)
    if walked.table is None or not carried.key or carried.key == key_of(frame):
        return carried
    again = carry(mark_key(frame, carried.key))
    assert again.table is not None
    return replace(again, table=replace(again.table, is_several=walked.table.is_several))


def table_of(
    frame: DataFrame, key: Names | None, *, what: str = "key", several: bool = False
) -> tuple[DataFrame, tuple[str, ...]]:
    """A table for an operator, and the columns that name its rows; `key` if they are given.

    `several`: the operator can tell rows apart that were made of one, if `key` does.
    """
    carried = carry(frame)
    table = carried.table
    if table is None:
        return frame, key_or_marked(frame, key, what=what)
    if table.is_several and not (several and key):
        raise BadChangelog(SHARED)
    if key is None and table.key is not None and not carried.key:
        raise _lost_key(carried)
    names = key_or_marked(carried.frame, key, what=what)
    if key is not None:
        require_named(carried, names, what=f"{what}=")
    return carried.frame, names


def joined_table(frame: DataFrame) -> DataFrame:
    """A table that is joined with a stream: by its key, if it has one that is known."""
    carried = carry(frame)
    if carried.table is not None and carried.table.key is not None and not carried.key:
        raise _lost_key(carried)
    return carried.frame


def only_rows(frame: DataFrame, what: str) -> DataFrame:
    """A stream for an operator that takes rows which only come."""
    if carry(frame).table is not None:
        raise refusal(what)
    return frame


def met_condition(frame: DataFrame, condition: Column | str) -> Column:
    """A condition for rows of a table, once it is known to stay true while a row stays."""
    met = F.expr(condition) if isinstance(condition, str) else condition
    java = _analyzed(frame.filter(met))
    require_lasting(_timed(java.condition(), frame.sparkSession))
    asked = {str(one.name()) for one in _items(java.condition().references().toSeq())}
    if asked & {CHANGE, ORDER} and _is_by_value(frame):
        raise refusal("filter by change")
    return met


def _is_by_value(frame: DataFrame) -> bool:
    found = [field.metadata for field in frame.schema if field.name == CHANGE]
    return any(metadata.get(CHANGE_MARK) == BY_VALUE for metadata in found)


def _lost_key(carried: Carried) -> BadChangelog:
    return BadChangelog(
        f"the columns {', '.join(columns_of(carried.frame))} are without the key of the table, so "
        "nothing says which row changed. Keep the columns of the key; if others made of them name "
        "a row too, say so with changelog.mark_key(frame, [columns])"
    )


def require_named(carried: Carried, names: Sequence[str], *, what: str) -> None:
    """These columns name a row of the table, and of those that were made of one row only one."""
    if not carried.is_named_by(names):
        raise _not_the_key(carried, names, what=what)
    if carried.is_shared(names):
        raise BadChangelog(SHARED)


def _not_the_key(carried: Carried, names: Sequence[str], *, what: str) -> BadChangelog:
    if not carried.key:
        return _lost_key(carried)
    return BadChangelog(
        f"{what}{', '.join(names)} is not the key of the table ({', '.join(carried.key)}): rows "
        "that change or go would stay behind. Take that key; or give the table another with "
        "changelog.aggregate, changelog.distinct or changelog.top"
    )


@dataclass(frozen=True)
class Walked:
    java: Any
    table: Judged


def _walk(java: Any, session: SparkSession) -> Walked:
    if (marked := _marked(java)) is not None:
        table = marked.table and replace(marked.table, is_moved=_is_moved(java))
        return Walked(java, table)
    step = _step(java, session)
    try:
        below = [_walk(child, session) for child in _items(java.children())]
    except NotOnTables:
        if is_allowed(step):
            raise
        raise refusal(step.name) from None  # what the application wrote last says most
    judged = judge(step, [one.table for one in below])
    if judged is None or below[0].table is None:
        return Walked(java, judged)
    return Walked(_made_again(java, step, below[0], judged, session), judged)


def _made_again(
    java: Any, step: Step, below: Walked, judged: TableChanges, session: SparkSession
) -> Any:
    """The same node over the new plan below it, with what it must carry."""
    assert below.table is not None
    if step.condition is not None and not only_of_key(step.condition, below.table):
        return _deleting(java, below, session)
    if judged.adds:
        added = [one for one in _items(below.java.output()) if one.exprId().id() in judged.adds]
        columns = java.projectList()
        for one in added:
            columns = columns.appended(one)
        return _logical(session).Project(columns, below.java)
    (was,) = _items(java.children())
    if below.java is was:
        return java
    return java.withNewChildren(java.children().take(0).appended(below.java).toIndexedSeq())


def _deleting(java: Any, below: Walked, session: SparkSession) -> Any:
    """The filter as changelog.where has it, its columns under their old numbers."""
    jvm: Any = session._jvm
    frame = _frame(below.java, session)
    key = Carried(frame, below.table, _numbers(below.java)).key
    if not key:
        raise refusal("filter without key")
    condition = jvm.org.apache.spark.sql.classic.ExpressionUtils.column(java.condition())
    told = _analyzed(rows_that_meet(frame, Column(condition), key))
    pairs = zip(_items(told.output()), _items(below.java.output()), strict=True)
    columns = java.children().take(0)
    for new, old in pairs:
        columns = columns.appended(_renumbered(session, new, old))
    return _logical(session).Project(columns.toSeq(), told)


def _renumbered(session: SparkSession, new: Any, old: Any) -> Any:
    if new.exprId().id() == old.exprId().id():
        return new
    jvm: Any = session._jvm
    metadata = jvm.scala.Option.apply(new.metadata())
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(
        new, old.name(), old.exprId(), old.qualifier(), metadata, old.qualifier().take(0)
    )


# Marks


@dataclass(frozen=True)
class Mark:
    table: Judged


def _marked(java: Any) -> Mark | None:
    """What the node is said to be: by a selection that does so, or by a leaf that was kept."""
    if java.nodeName() == "Project":
        noted = [one for one in _items(java.projectList()) if _is_noted(one)]
    elif java.children().isEmpty():
        noted = _items(java.output())
    else:
        return None
    if any(one.metadata().contains(ROWS_MARK) for one in noted):
        return Mark(None)
    signs = [one for one in noted if one.metadata().contains(CHANGE_MARK)]
    if signs:
        return Mark(_table(java, signs[0]))
    if java.children().isEmpty() and _has_key_alone(noted):
        raise refusal("checkpoint")
    return None


def _has_key_alone(columns: list[Any]) -> bool:
    has_key = any(one.metadata().contains(KEY_MARK) for one in columns)
    return has_key and all(one.name() != CHANGE for one in columns)


def _is_noted(one: Any) -> bool:
    return _class(one) == "Alias" and bool(one.explicitMetadata().isDefined())


def _table(java: Any, sign: Any) -> TableChanges:
    columns = _items(java.output())
    parts: dict[int, set[int]] = {}
    for one in columns:
        if one.metadata().contains(KEY_MARK):
            parts.setdefault(one.metadata().getLong(KEY_MARK), set()).add(one.exprId().id())
    orders = [one.exprId().id() for one in columns if one.name() == ORDER]
    return TableChanges(
        key=tuple(frozenset(parts[place]) for place in sorted(parts)) or None,
        change=sign.exprId().id(),
        order=orders[0] if orders else None,
        by_value=sign.metadata().getString(CHANGE_MARK) == BY_VALUE,
    )


# Nodes as plain values


def _step(java: Any, session: SparkSession) -> Step:
    name = str(java.nodeName())
    return Step(
        name=name,
        made=tuple(_timed(one, session) for one in _makers(java, name)),
        condition=_timed(java.condition(), session) if name == "Filter" else None,
        moves=_moves(java, name),
        asks=not java.subqueries().isEmpty(),
        asks_tables=any(_has_table(one) for one in _items(java.subqueries())),
    )


def _makers(java: Any, name: str) -> list[Any]:
    """What makes the columns of a selection, or the rows of a generator."""
    match name:
        case "Project":
            return _items(java.projectList())
        case "Generate":
            return [java.generator()]
    return []


def _is_moved(java: Any) -> bool:
    """Whether rows have changed places below a mark, since something put each key in one place."""
    name = str(java.nodeName())
    if name not in ALLOWED:
        return False
    return _moves(java, name) or any(_is_moved(one) for one in _items(java.children()))


def _moves(java: Any, name: str) -> bool:
    if name == "Repartition":
        return bool(java.shuffle())
    return name in ("RepartitionByExpression", "RebalancePartitions", "Sort")


def _has_table(java: Any) -> bool:
    """Whether a table's changes come into a subquery, however deep."""
    if (marked := _marked(java)) is not None:
        return marked.table is not None
    return any(_has_table(one) for one in (*_items(java.children()), *_items(java.subqueries())))


def _timed(java: Any, session: SparkSession) -> Made:
    jvm: Any = session._jvm
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return replace(_made(java), is_timed=bool(java.containsPattern(clock)))


def _made(java: Any) -> Made:
    is_named = _class(java) in ("Alias", "AttributeReference")
    return Made(
        name=str(java.name()) if is_named else "",
        number=int(java.exprId().id()) if is_named else -1,
        carries=_carried(java),
        made_of=frozenset(one.exprId().id() for one in _items(java.references().toSeq())),
        is_steady=bool(java.deterministic()),
    )


def _carried(java: Any) -> int | None:
    """The number of the column whose value this has, in whatever spelling."""
    match _class(java):
        case "AttributeReference":
            return int(java.exprId().id())
        case "Alias":
            return _carried(java.child())
        case "Cast" if _keeps_apart(java):
            return _carried(java.child())
        case "Coalesce":  # na.fill: neither a key nor a change is ever null
            first, *others = _items(java.children())
            return _carried(first) if all(one.foldable() for one in others) else None
    return None


def _keeps_apart(cast: Any) -> bool:
    given, made = str(cast.child().dataType().typeName()), str(cast.dataType().typeName())
    if given in INTEGERS and made in INTEGERS:
        return INTEGERS.index(given) <= INTEGERS.index(made)
    return given == made or (given in TO_TEXT and made == "string")


def _class(java: Any) -> str:
    return str(java.getClass().getSimpleName())


def _numbers(java: Any) -> dict[str, int]:
    return {one.name(): one.exprId().id() for one in reversed(_items(java.output()))}


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _frame(java: Any, session: SparkSession) -> DataFrame:
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, java)
    return DataFrame(made, session)


def _logical(session: SparkSession) -> Any:
    jvm: Any = session._jvm
    return jvm.org.apache.spark.sql.catalyst.plans.logical
