"""The words of a join of a stream with a table, as one key sees it. Pure.

`enrichment_state.py` and `as_of_state.py` decide by them; `stream_table_operator.py` runs either.
Rows are dicts by column. A watermark of None means that there is no time to wait for.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from millstream.base.changes import UPSERT

Row = dict[str, Any]
Plain = tuple[Any, ...]

# Valid since before all time: of versions that do not say since when.
EVER_US = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A row of the stream, and its time."""

    row: Row
    at_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The table's row from now on; None: there is none. `from_us` is since when it holds.

    A deletion without that time is of all that there was.
    """

    order: int
    row: Row | None
    from_us: int | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A row of the result: the stream's, with the table's beside it or without."""

    row: Row
    table_row: Row | None
    change: str = UPSERT


@dataclass(slots=True)
class Step:
    """What a batch brought for one key; `late_versions` came after rows had their answer."""

    joined: list[Joined] = field(default_factory=list)
    late_versions: int = 0


class KeyState(Protocol):
    """What is remembered of one key."""

    def plain(self) -> Plain | None:
        """As plain values; None: there is nothing to remember."""


State = TypeVar("State", bound=KeyState)


class StreamTableJoin(Protocol[State]):
    """One way to join. Within a batch, changes of the table come before rows of the stream."""

    def recall(self, plain: Plain | None) -> State:
        """The state again. What it does to it leaves `plain` as it is."""

    def step(
        self,
        state: State,
        changes: list[TableChange],
        arrivals: list[Arrival],
        *,
        watermark_ms: int | None,
    ) -> Step: ...

    def due_ms(self, state: State) -> int | None:
        """The watermark at which time alone has something to do here; after a step, a later one."""


def by_order(changes: list[TableChange]) -> list[TableChange]:
    """What goes, goes before what comes with the same order (base/changes.py)."""
    return sorted(changes, key=lambda change: (change.order, change.row is not None))


def ms_after(time_us: int) -> int:
    """The first millisecond that is not before this time."""
    return -(-time_us // 1000)
