"""What the console shows, as its pages ask for it. Protocols only; `commands/console/` gives it.

All calls block, and may be made from any thread. Answers may be a second old. What the broker or
the application refuses is raised in our own words.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from millstream.queues.inspection import QueueSeen
from millstream.queues.letters import DeadLetter
from millstream.web.console.facts import (
    AggregateSeen,
    CaptureSeen,
    Flow,
    GroupDetail,
    GroupSeen,
    JobSeen,
    Look,
    NewRecord,
    RecordSeen,
    StreamHistory,
    StreamSeen,
    TopicDetail,
    TopicSeen,
)


class RecordTail(Protocol):
    """Records of a topic from now on. For one thread at a time."""

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        """Those that came, as soon as there are any; none if none came in time."""

    def close(self) -> None: ...


class Topics(Protocol):
    def troubles(self) -> Sequence[str]:
        """What the brokers cannot do at present, such as write to a full disk: a sentence each."""

    def partitions(self) -> Mapping[str, int]:
        """How many every topic has: one request, however many there are."""

    def seen(self, names: Sequence[str]) -> Sequence[TopicSeen]:
        """Those of one page, with offsets and sizes: a few requests for all of them."""

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        """How many records were ever written to each; of those that are there."""

    def detail(self, name: str) -> TopicDetail: ...

    def newest(self, topic: str, *, partition: int | None, limit: int) -> Look:
        """The last ones, the newest first."""

    def records(self, topic: str, *, partition: int, offset: int, limit: int) -> Look:
        """From an offset on, in order."""

    def tail(self, topic: str, *, partition: int | None) -> RecordTail: ...

    def produce(self, record: NewRecord) -> tuple[int, int]:
        """The partition and the offset that it got; durable when this returns."""


class Groups(Protocol):
    def names(self) -> Sequence[str]: ...

    def seen(self, names: Sequence[str]) -> Sequence[GroupSeen]: ...

    def detail(self, name: str) -> GroupDetail: ...


class Queues(Protocol):
    def names(self) -> Sequence[str]: ...

    def seen(self, name: str) -> QueueSeen: ...

    def dead(self, name: str) -> Sequence[DeadLetter]:
        """Those that were not put back, the newest first."""

    def redrive(self, name: str, ids: Sequence[str] | None) -> int:
        """How many were put back; None: all of them."""


class Declared(Protocol):
    """What the application says of itself."""

    def flow(self) -> Flow: ...

    def captures(self) -> Sequence[CaptureSeen]: ...

    def jobs(self) -> Sequence[JobSeen]: ...

    def restart(self, job: str) -> None:
        """Ask whoever runs it to begin it again; raises if nobody does."""

    def view_place(self, view: str) -> str:
        """Where it is kept, in words."""


class Aggregates(Protocol):
    """The event-sourced part of an application."""

    def kinds(self) -> Sequence[AggregateSeen]: ...

    def streams(self, kind: str, *, starts_with: str, limit: int) -> Sequence[StreamSeen]: ...

    def history(
        self, kind: str, stream: str, *, version: int | None, limit: int
    ) -> StreamHistory | None:
        """As of a version, or of now; None if there is no such stream."""


class Source(Protocol):
    """All of it, for one console."""

    @property
    def topics(self) -> Topics: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def queues(self) -> Queues: ...
    @property
    def declared(self) -> Declared: ...
    @property
    def aggregates(self) -> Aggregates: ...
