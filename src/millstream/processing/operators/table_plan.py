"""What Spark's own operators may do over a table's changes: the rules, one for each node. Pure.

A table in a stream is its changes (base/changes.py), and Spark takes them for rows that only come.
So every operator between a table and what is made of it is judged here: it is right on changes, or
it is refused with what to write instead. What is not known is refused. `table_frames.py` reads the
plans, and carries `_change` and `_order` through selections that leave them out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from millstream.base.changes import CHANGE, ORDER
from millstream.base.errors import Rejected


class NotOnTables(Rejected):
    """An operator of Spark that would be wrong over the changes of a table."""

    def __init__(self, *, operator: str, why: str, instead: str) -> None:
        super().__init__(f"{operator}, over the changes of a table: {why}. {instead}")
        self.operator, self.why, self.instead = operator, why, instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A column or condition of a node, by Spark's numbers.

    `carries` is the column whose value it has unchanged. `is_steady`: the same row always gives the
    same value. `is_timed`: it asks the clock.
    """

    name: str = ""
    number: int = -1
    carries: int | None = None
    made_of: frozenset[int] = frozenset()
    is_steady: bool = True
    is_timed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node of a plan. `made` are its columns, or rows, where it makes any.

    `moves`: rows change places. `asks`: it has a subquery; `asks_tables`: of a table.
    """

    name: str
    made: tuple[Made, ...] = ()
    condition: Made | None = None
    moves: bool = False
    asks: bool = False
    asks_tables: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The output of a node, when it is the changes of a table.

    `key` has for each part of the key the columns that hold it: none, if they were left out; it is
    None if nobody has said what names a row. `by_value`: whole rows go and come. `is_several`: rows
    of one key are several. `is_moved`: changes of one key may be in several partitions. `adds` are
    the columns that the node must carry beside its own.
    """

    key: tuple[frozenset[int], ...] | None = None
    change: int
    order: int | None = None
    by_value: bool = False
    is_several: bool = False
    is_moved: bool = False
    adds: tuple[int, ...] = ()

    @property
    def holding(self) -> frozenset[int]:
        """The columns that hold a part of the key."""
        return frozenset().union(*(self.key or ()))

    def is_named_by(self, columns: Collection[int]) -> bool:
        """Whether these columns name a row of it: no part of the key is missing, and nothing that
        can change while the key stays, except where whole rows go and come."""
        if self.key is None:
            return True
        has_all = all(part & set(columns) for part in self.key)
        return has_all and (self.by_value or self.holding >= set(columns))

    def is_shared(self, columns: Collection[int]) -> bool:
        """Whether several rows have the same values there: all that were made of one row."""
        return self.is_several and self.key is not None and self.holding >= set(columns)


# A node over rows that only come, or over nothing: anything goes.
Judged = TableChanges | None


def judge(step: Step, inputs: Sequence[Judged]) -> Judged:
    """What a node makes of its inputs; refused if that would be wrong."""
    tables = [one for one in inputs if one is not None]
    if tables and (step.name not in ALLOWED or len(inputs) != 1):
        raise refusal(step.name)
    if step.asks_tables or (step.asks and tables):
        raise refusal("subquery")
    if not tables:
        return None
    (table,) = tables
    unchanged = replace(table, adds=(), is_moved=table.is_moved or step.moves)
    if step.name == "Project":
        return _projected(step, unchanged)
    if step.name == "Filter":
        return _filtered(step, unchanged)
    if step.name == "Generate":
        return _generated(step, unchanged)
    return unchanged


# Right on changes, each with the reason.
ALLOWED = {
    "Project": "a row's columns are made of that row alone; its key and its change go with it",
    "Filter": "a row that no longer meets the condition is deleted (as changelog.where does)",
    "Generate": "of changes as whole rows: what a row brought, it takes away when it goes",
    "SubqueryAlias": "a name",
    "View": "a name",
    "ResolvedHint": "advice to the optimizer",
    "CollectMetrics": "rows pass as they are; the metrics are of changes",
    "Repartition": "every change has its order, by which outputs and states take it",
    "RepartitionByExpression": "every change has its order, by which outputs and states take it",
    "RebalancePartitions": "every change has its order, by which outputs and states take it",
    "Sort": "every change has its order, by which outputs and states take it",
}


def is_allowed(step: Step) -> bool:
    return step.name in ALLOWED


def _projected(step: Step, table: TableChanges) -> TableChanges:
    _require_steady(step, table)
    change = _carried(step, table.change, CHANGE)
    order = _carried(step, table.order, ORDER)
    signs = ((table.change, change), (table.order, order))
    return replace(
        table,
        key=None if table.key is None else tuple(_holding(step, part) for part in table.key),
        change=table.change if change is None else change,
        order=table.order if order is None else order,
        adds=tuple(old for old, new in signs if old is not None and new is None),
    )


def _require_steady(step: Step, table: TableChanges) -> None:
    """A row that goes must be the one that came: of whole rows, also at another time."""
    for made in step.made:
        if not made.is_steady:
            raise refusal("nondeterministic")
        if made.is_timed and table.by_value:
            raise refusal("clock of whole rows")


def _carried(step: Step, number: int | None, name: str) -> int | None:
    """The number of `_change` or `_order` in the output; None if it was left out."""
    for made in step.made:
        if made.name.lower() != name:
            continue
        if number is None or made.carries != number:
            raise refusal(name)
        return made.number
    return None


def _holding(step: Step, part: frozenset[int]) -> frozenset[int]:
    return frozenset(made.number for made in step.made if made.carries in part)


def _filtered(step: Step, table: TableChanges) -> TableChanges:
    assert step.condition is not None, "a filter has one"
    require_lasting(step.condition)
    if table.by_value and step.condition.made_of & {table.change, table.order}:
        raise refusal("filter by change")
    return table


def require_lasting(condition: Made) -> None:
    """A condition must hold as long as its row stays as it is."""
    if condition.is_timed:
        raise refusal("clock")
    if not condition.is_steady:
        raise refusal("nondeterministic")


def only_of_key(condition: Made, table: TableChanges) -> bool:
    """Whether such a filter may stay as it is: a delete has its key, and a key does not change."""
    return table.by_value or condition.made_of <= table.holding


def _generated(step: Step, table: TableChanges) -> TableChanges:
    if not table.by_value:
        raise refusal("Generate")
    _require_steady(step, table)
    return replace(table, is_several=True)


def refusal(name: str) -> NotOnTables:
    operator, why, instead = REFUSED.get(name, (f"Spark's {name}", *UNKNOWN))
    return NotOnTables(operator=operator, why=why, instead=instead)


COUNTS_CHANGES = "it would take every change for a row of its own, and no row would ever go"
SHARED_KEY = "rows made of one row would share its key, and the last would win"
STALE_MATCHES = "rows that change or go would leave their old matches behind"
STALE_PLACES = "the rows around a row change, and it would not follow them"
COMPARES_CHANGES = "it compares changes, not rows"
OPAQUE = "nobody knows what a function makes of deletes, or of rows when they change"
NOT_FOLLOWED = "its plan is not followed"
AS_EVENTS = "For every change as a row that stays, write changelog.events(table) before it"
DISTINCT = "Write changelog.distinct(table, [columns])"
FIRST_OF_GROUP = "Write changelog.top(table, 1, by=..., order_by=...)"
TOP = "Write changelog.top(table, n, order_by=...)"
RANKED = "Write changelog.top(table, n, by=..., order_by=..., rank=...)"
TABLES = "Write joins.tables(left, right, on=...)"
WITHOUT_MATCH = 'Write joins.tables(..., how="left"), then changelog.where(..., "column IS NULL")'
IN_FROM = "Write the query in FROM (SELECT ...), or as a DataFrame"
UDF = f"Write a function of columns (a UDF) in select or withColumn. {AS_EVENTS}"
UNKNOWN = ("nobody has shown that it is right there", f"See docs/guides/tables.md. {AS_EVENTS}")

# By the name of Spark's node, or of what is asked: operator, why, what to write instead.
REFUSED: dict[str, tuple[str, str, str]] = {
    "Aggregate": (
        "groupBy or agg",
        COUNTS_CHANGES,
        f"Write changelog.aggregate(table, by=..., of=...). {AS_EVENTS}",
    ),
    "Distinct": ("distinct", COUNTS_CHANGES, DISTINCT),
    "Deduplicate": ("dropDuplicates", COUNTS_CHANGES, f"{DISTINCT}. {FIRST_OF_GROUP}"),
    "DeduplicateWithinWatermark": (
        "dropDuplicatesWithinWatermark",
        COUNTS_CHANGES,
        f"{DISTINCT}. {FIRST_OF_GROUP}",
    ),
    "Expand": (
        "A hopping window, unpivot, rollup or cube",
        SHARED_KEY,
        "Write changelog.windowed(table, window) or changelog.explode(table, column)",
    ),
    "Generate": (
        "explode or another generator",
        SHARED_KEY,
        "Write changelog.explode(table, column, position=...)",
    ),
    "Union": (
        "union",
        "rows of two inputs can have one key, and the last would win",
        'Write changelog.union({"one": table, "other": table})',
    ),
    "Intersect": ("intersect", COMPARES_CHANGES, TABLES),
    "Intersect All": ("intersectAll", COMPARES_CHANGES, TABLES),
    "Except": ("subtract", COMPARES_CHANGES, WITHOUT_MATCH),
    "Except All": ("exceptAll", COMPARES_CHANGES, WITHOUT_MATCH),
    "Join": (
        "Spark's join",
        STALE_MATCHES,
        f"{TABLES} for two tables, joins.enrich or joins.as_of for a stream and a table. For a "
        "static frame, declare it as a table too",
    ),
    "LateralJoin": ("A lateral join", STALE_MATCHES, f"{TABLES}, or changelog.explode"),
    "AsOfJoin": ("Spark's as-of join", STALE_MATCHES, "Write joins.as_of"),
    "NearestByJoin": ("nearestByJoin", STALE_MATCHES, f"{TABLES}, then changelog.top"),
    "Window": ("A window function (over)", STALE_PLACES, RANKED),
    "GlobalLimit": ("limit", STALE_PLACES, TOP),
    "LocalLimit": ("limit", STALE_PLACES, TOP),
    "Offset": ("offset", STALE_PLACES, RANKED),
    "AttachDistributedSequence": ("zipWithIndex", STALE_PLACES, RANKED),
    "Sample": (
        "sample",
        "it would take some changes of a row and leave others",
        'Write changelog.where(table, "pmod(xxhash64(id), 100) < 10"), with the columns of the key',
    ),
    "EventTimeWatermark": (
        "withWatermark",
        "a table has no event time, and its changes are never late",
        f"Leave it out. {AS_EVENTS}",
    ),
    "CTERelationDef": ("WITH in SQL", NOT_FOLLOWED, IN_FROM),
    "WithCTE": ("WITH in SQL", NOT_FOLLOWED, IN_FROM),
    "subquery": (
        "A subquery (IN, EXISTS or a single value)",
        "rows that change or go would leave their old answers behind",
        "Write joins.tables, joins.enrich or changelog.aggregate",
    ),
    "nondeterministic": (
        "rand, uuid or another value that differs each time",
        "a row would get another value whenever its batch is repeated or the view is rebuilt",
        "Write a function of the row, such as xxhash64(id), or keep the value in the table",
    ),
    "clock": (
        "A condition on the current time",
        "a row is looked at when it changes, not when time passes",
        "Delete such rows from the table, or filter when the view is read",
    ),
    "clock of whole rows": (
        "The current time in whole rows that go and come",
        "a row that goes would have another time than when it came, and stay",
        'Leave it out; or take changes by key: before changelog.retracting, or of emit="upsert"',
    ),
    "filter by change": (
        f"A filter of whole rows on {CHANGE} or {ORDER}",
        "the changes that it leaves out are of rows that would stay",
        f"Filter by other columns. {AS_EVENTS}",
    ),
    "filter without key": (
        "filter",
        "nothing says which columns name a row, so none can be deleted",
        "Filter before the key is left out, or write changelog.where(frame, condition, key=[...])",
    ),
    "checkpoint": (
        f"A checkpoint of columns without {CHANGE}",
        "it no longer says which rows are gone",
        f"Keep {CHANGE} and {ORDER} in the columns, or take the checkpoint first",
    ),
    "windows.aggregate": (
        "windows.aggregate",
        COUNTS_CHANGES,
        f"Write changelog.aggregate of changelog.windowed(table, window). {AS_EVENTS}",
    ),
    "joins.within": ("joins.within", STALE_MATCHES, f"{TABLES}. {AS_EVENTS}"),
    "stream side": (
        "joins.enrich or joins.as_of with a table on the side of the stream",
        STALE_MATCHES,
        f"{TABLES}. {AS_EVENTS}",
    ),
    "correct_clock": (
        "correct_clock",
        "a table's rows are not messages of devices, and deletes have no times",
        AS_EVENTS,
    ),
    CHANGE: (
        f"A column {CHANGE} of your own",
        "it would say of rows what did not happen to them",
        f"Give it another name. {AS_EVENTS}",
    ),
    ORDER: (
        f"A column {ORDER} of your own",
        "the changes of a row would lose their order",
        "Give it another name",
    ),
    "MapInPandas": ("mapInPandas", OPAQUE, UDF),
    "MapInArrow": ("mapInArrow", OPAQUE, UDF),
    "FlatMapGroupsInPandas": ("applyInPandas", OPAQUE, UDF),
    "FlatMapGroupsInArrow": ("applyInArrow", OPAQUE, UDF),
    "FlatMapCoGroupsInPandas": ("cogroup", OPAQUE, UDF),
    "FlatMapCoGroupsInArrow": ("cogroup", OPAQUE, UDF),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", OPAQUE, UDF),
    "TransformWithStateInPySpark": ("transformWithState", OPAQUE, UDF),
}
