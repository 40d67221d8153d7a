"""What the pages of the console are made of: values, as the broker and the application have them.

None stands for what is not known: never for 0. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from millstream.base.declared import LATE_SUFFIX
from millstream.base.quantity import SECOND_MS
from millstream.base.record import Header
from millstream.capture.status import Status
from millstream.processing.jobs.job_status import JobStatus
from millstream.processing.jobs.lag import Lag
from millstream.queues.asked import DEAD_SUFFIX

# --- topics -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """One line of the list. `end`: all offsets that were ever given, `records`: those still there,
    as far as offsets tell."""

    name: str
    partitions: int
    records: int | None = None
    end: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSeen:
    number: int
    leader: int
    replicas: int
    in_sync: int
    start: int
    end: int
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSeen:
    """`is_own`: the topic sets it; else it is a default."""

    name: str
    value: str
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """`retention` and `configs` are empty where they may not be seen."""

    name: str
    partitions: tuple[PartitionSeen, ...]
    retention: str = ""
    configs: tuple[ConfigSeen, ...] = ()

    @property
    def records(self) -> int:
        return sum(one.end - one.start for one in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        sizes = [one.size_bytes for one in self.partitions]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSeen:
    """`headers` are None where the client cannot read them: one's name is not UTF-8."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None = ()


class Look(list[RecordSeen]):
    """The records that a look found. `is_cut`: it ended before it had all that it was to find, for
    their bytes or for the time that it took; `unread`: partitions with records that it left out."""

    def __init__(
        self,
        found: Iterable[RecordSeen] = (),
        *,
        is_cut: bool = False,
        unread: Sequence[int] = (),
    ) -> None:
        super().__init__(found)
        self.is_cut, self.unread = is_cut, tuple(unread)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """What somebody wants to produce; without a partition the key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None


# --- groups -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """`lag` is of the partitions that it committed; of `uncommitted` ones it is not known."""

    name: str
    state: str
    protocol: str
    members: int | None = None
    topics: tuple[str, ...] = ()
    lag: int | None = None
    uncommitted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    risk: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    id: str
    client_id: str
    host: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    seen: GroupSeen
    partitions: tuple[GroupPartition, ...]
    members: tuple[GroupMember, ...]


# --- what the application declared ---------------------------------------------------------------

NodeKind = Literal["capture", "topic", "job", "view", "sink", "aggregate", "broker"]


@dataclass(frozen=True, slots=True)
class Node:
    kind: NodeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What flows into what, as it was declared. An edge leads from its first node to its second."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[Node, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSeen:
    """`status` is the last that its run told; `is_stale`: nobody tells any more. `url` has no
    password. `refusal`: why the broker takes no records of it now, so that it cannot write its
    status either; empty if it does."""

    name: str
    url: str
    mode: str
    tables: tuple[str, ...]
    topics: tuple[str, ...] = ()
    status: Status | None = None
    is_stale: bool = False
    is_paused: bool = False
    refusal: str = ""

    @property
    def error(self) -> str:
        """What is wrong now, before what its run last told."""
        return self.refusal or (self.status.error if self.status else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """`at_ms`: events before it are late. Where late events correct results, Spark's own watermark
    is as far back as state is kept: `corrects_from_ms`, before which nothing is corrected."""

    at_ms: int
    corrects_from_ms: int | None = None


def time_ms(text: str | None) -> int | None:
    """Of a time as Spark writes it; None for what is none."""
    if text is None:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND_MS)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """`inputs` are nodes of the flow; `status` is None for a job that never ran here. `measured` is
    its lag where its run does not tell it: the run has ended, or has not begun to read.

    `trigger_ms`: how long it waits between two batches. `corrects_ms`: how much farther back than
    its lateness its watermark is, since it keeps what late events correct.
    """

    name: str
    inputs: tuple[Node, ...]
    output: str
    target: Node
    place: str = ""
    status: JobStatus | None = None
    is_stale: bool = False
    measured: Lag | None = None
    trigger_ms: int | None = None
    corrects_ms: int = 0

    @property
    def tells_lag(self) -> bool:
        """Whether its run measures the lag every second. Of a run that has ended, or waits, the
        file has what was true then."""
        if self.status is None or self.is_stale:
            return False
        progress = self.status.progress
        return progress.state == "running" and bool(progress.lag)

    @property
    def lag(self) -> Lag:
        """As it is now; empty if it is not known."""
        if self.status is not None and self.tells_lag:
            progress = self.status.progress
            return Lag(records=progress.lag, ms=progress.lag_ms)
        return self.measured or Lag()

    @property
    def watermark(self) -> Watermark | None:
        progress = None if self.status is None else self.status.progress
        at_ms = None if progress is None else time_ms(progress.watermark)
        if at_ms is None:
            return None
        corrects_from_ms = at_ms if self.corrects_ms else None
        return Watermark(at_ms=at_ms + self.corrects_ms, corrects_from_ms=corrects_from_ms)

    @property
    def node(self) -> Node:
        return Node("job", self.name)

    @property
    def keeps_view(self) -> bool:
        return self.target == Node("view", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideTopics:
    """Where is what a job could not use: topics of dead letters, and of late events."""

    dead: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


def aside_of(job: JobSeen, there: Collection[str]) -> AsideTopics:
    """Of those that exist: a late event that is dropped or corrects a result is in none."""
    read = [one.name for one in job.inputs if one.kind == "topic"]
    found = {
        suffix: tuple(f"{name}{suffix}" for name in read if f"{name}{suffix}" in there)
        for suffix in (DEAD_SUFFIX, LATE_SUFFIX)
    }
    return AsideTopics(dead=found[DEAD_SUFFIX], late=found[LATE_SUFFIX])


# --- aggregates ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSeen:
    """One kind of aggregate: `topic` has its events, `events` are the names of their types."""

    name: str
    topic: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSeen:
    """One aggregate: its identity, and how many events it has."""

    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeen:
    """`version` is the aggregate's after it. `data` is what JSON has words for."""

    version: int
    type: str
    at_ms: int | None
    data: Any
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHistory:
    """The events of one stream, the newest first, up to a limit; and its state as of `version`."""

    id: str
    version: int
    newest: int
    events: Sequence[EventSeen]
    state: Any
