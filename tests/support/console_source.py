"""What a console shows, from memory: topics, groups, queues, captures, jobs and aggregates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.base.errors import MillstreamError
from millstream.capture.status import Status
from millstream.processing.jobs.job_status import JobStatus
from millstream.processing.jobs.lag import Lag
from millstream.processing.jobs.progress import JobProgress
from millstream.queues.inspection import Backlog, QueueSeen, WorkerSeen
from millstream.queues.letters import DeadLetter, Death
from millstream.web.console.facts import (
    AggregateSeen,
    CaptureSeen,
    ConfigSeen,
    EventSeen,
    Flow,
    GroupDetail,
    GroupMember,
    GroupPartition,
    GroupSeen,
    JobSeen,
    Look,
    NewRecord,
    Node,
    PartitionSeen,
    RecordSeen,
    StreamHistory,
    StreamSeen,
    TopicDetail,
    TopicSeen,
)

NOW_MS = 1_794_963_600_000
HOSTILE = "<script>alert(1)</script>"


class MemoryTail:
    """Gives what was put into it; `is_closed` tells that nobody follows it any more."""

    def __init__(self) -> None:
        self.coming: list[list[RecordSeen]] = []
        self.is_closed = False

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        return self.coming.pop(0) if self.coming else []

    def close(self) -> None:
        self.is_closed = True


@dataclass
class MemoryTopics:
    """`asked` are the names that figures were asked of, call by call."""

    counts: dict[str, int] = field(default_factory=lambda: {"clicks": 2, "notes": 1, "_state": 1})
    written: list[RecordSeen] = field(default_factory=list)
    asked: list[Sequence[str]] = field(default_factory=list)
    trouble: MillstreamError | None = None
    followed: MemoryTail = field(default_factory=MemoryTail)
    end: int = 100
    is_cut: bool = False
    unread: tuple[int, ...] = ()
    troubles_seen: tuple[str, ...] = ()

    def troubles(self) -> Sequence[str]:
        return self.troubles_seen

    def partitions(self) -> Mapping[str, int]:
        if self.trouble is not None:
            raise self.trouble
        return self.counts

    def seen(self, names: Sequence[str]) -> Sequence[TopicSeen]:
        self.asked.append(names)
        return [
            TopicSeen(name=name, partitions=self.counts[name], records=90, end=100, size_bytes=2048)
            for name in names
        ]

    def ends(self, names: Sequence[str]) -> Mapping[str, int]:
        if self.trouble is not None:
            raise self.trouble
        return {name: self.end for name in names if name in self.counts}

    def detail(self, name: str) -> TopicDetail:
        partitions = [
            PartitionSeen(number=one, leader=1, replicas=1, in_sync=1, start=0, end=9, size_bytes=7)
            for one in range(self.counts[name])
        ]
        own = ConfigSeen(name="retention.ms", value="1000", is_own=True)
        return TopicDetail(name=name, partitions=tuple(partitions), retention="7d", configs=(own,))

    def newest(self, topic: str, *, partition: int | None, limit: int) -> Look:
        found = [
            one for one in self.written if one.topic == topic and partition in (None, one.partition)
        ]
        return Look(found[::-1][:limit], is_cut=self.is_cut, unread=self.unread)

    def records(self, topic: str, *, partition: int, offset: int, limit: int) -> Look:
        there = [one for one in self.written if (one.topic, one.partition) == (topic, partition)]
        found = [one for one in there if one.offset >= offset]
        return Look(found[:limit], is_cut=self.is_cut)

    def tail(self, topic: str, *, partition: int | None) -> MemoryTail:
        return self.followed

    def produce(self, record: NewRecord) -> tuple[int, int]:
        offset = len(self.written)
        self.written.append(
            RecordSeen(
                topic=record.topic,
                partition=record.partition or 0,
                offset=offset,
                timestamp_ms=NOW_MS,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )
        return record.partition or 0, offset


class MemoryGroups:
    trouble: MillstreamError | None = None

    def __init__(self) -> None:
        self.there = [f"group-{number:02}" for number in range(3)] + ["team/a"]

    def names(self) -> Sequence[str]:
        if self.trouble is not None:
            raise self.trouble
        return self.there

    def seen(self, names: Sequence[str]) -> Sequence[GroupSeen]:
        return [
            GroupSeen(
                name=name,
                state="stable",
                protocol="consumer",
                members=1,
                topics=("clicks",),
                lag=12,
                uncommitted=1,
            )
            for name in names
        ]

    def detail(self, name: str) -> GroupDetail:
        behind = GroupPartition(
            topic="clicks", partition=1, committed=3, end=15, lag=12, risk="none", member="worker"
        )
        new = GroupPartition(
            topic="clicks", partition=0, committed=None, end=9, lag=None, risk="none", member=""
        )
        member = GroupMember(id="m-1", client_id="worker", host="127.0.0.1", partitions=2)
        return GroupDetail(seen=self.seen([name])[0], partitions=(new, behind), members=(member,))


class MemoryQueues:
    def __init__(self) -> None:
        self.letters = [letter(number) for number in range(3)]
        self.redriven: list[Sequence[str] | None] = []
        self.waiting: int | None = 2
        self.workers = 1

    def names(self) -> Sequence[str]:
        return ["restock"]

    def seen(self, name: str) -> QueueSeen:
        return QueueSeen(
            name=name,
            state="stable",
            workers=(WorkerSeen(id="w", host="127.0.0.1", partitions=1),) * self.workers,
            backlog=(Backlog(partition=0, start=4, waiting=self.waiting),),
        )

    def dead(self, name: str) -> Sequence[DeadLetter]:
        return self.letters

    def redrive(self, name: str, ids: Sequence[str] | None) -> int:
        self.redriven.append(ids)
        return len(self.letters) if ids is None else len(ids)


def letter(number: int) -> DeadLetter:
    death = Death(
        topic="restock",
        partition=0,
        offset=number,
        group="queue.restock",
        deliveries=5,
        reason=f"no such product {HOSTILE}",
    )
    return DeadLetter(
        death=death, key=None, raw_value=b'{"product": 7}', headers=(), died_ms=NOW_MS
    )


class MemoryDeclared:
    """A capture, two jobs; what they told can be set."""

    def __init__(self) -> None:
        self.progress = JobProgress(
            job="sales", state="running", batch=4, rows=10, lag={"clicks": 3}, late=2, dead=1
        )
        self.status: Status | None = Status(
            state="streaming",
            run="r",
            at_ms=NOW_MS,
            behind_ms=12,
            retained_bytes=1 << 20,
            changes=7,
            load=[{"table": "orders", "phase": "copying", "rows": 50, "rows_estimate": 200}],
        )
        self.is_stale = False
        self.refusal = ""
        self.measured: Lag | None = None
        self.corrects_ms = 0
        self.restarted: list[str] = []

    def flow(self) -> Flow:
        capture, orders, clicks = (
            Node("capture", "shopdb"),
            Node("topic", "shopdb.orders"),
            Node("topic", "clicks"),
        )
        job, view = Node("job", "sales"), Node("view", "sales")
        mails, sink = Node("job", "mails"), Node("sink", "send_mail")
        return Flow(
            nodes=(capture, orders, clicks, job, view, mails, sink),
            edges=((capture, orders), (orders, job), (clicks, job), (job, view), (mails, sink)),
        )

    def captures(self) -> Sequence[CaptureSeen]:
        return [
            CaptureSeen(
                name="shopdb",
                url="postgresql://mill:${SHOPDB_PASSWORD}@localhost/shop",
                mode="log",
                tables=("orders",),
                topics=("shopdb.orders",),
                status=self.status,
                is_stale=self.is_stale,
                refusal=self.refusal,
            )
        ]

    def jobs(self) -> Sequence[JobSeen]:
        told = JobStatus(progress=self.progress, at_ms=NOW_MS, host="here", process=7)
        sales = JobSeen(
            name="sales",
            inputs=(Node("topic", "clicks"),),
            output="a view by shop, day",
            target=Node("view", "sales"),
            status=told,
            is_stale=self.is_stale,
            measured=self.measured,
            corrects_ms=self.corrects_ms,
        )
        mails = JobSeen(
            name="mails", inputs=(), output="function send_mail", target=Node("sink", "send_mail")
        )
        return [sales, mails]

    def restart(self, job: str) -> None:
        self.restarted.append(job)

    def view_place(self, view: str) -> str:
        return f"a file of {view}"


class MemoryAggregates:
    """Stock of products: what came and what went."""

    def kinds(self) -> Sequence[AggregateSeen]:
        return [AggregateSeen(name="Stock", topic="stock", events=("Received", "Sold"))]

    def streams(self, kind: str, *, starts_with: str, limit: int) -> Sequence[StreamSeen]:
        there = [StreamSeen(id=name, version=3) for name in ("tea", "toast/x")]
        return [one for one in there if one.id.startswith(starts_with)][:limit]

    def history(
        self, kind: str, stream: str, *, version: int | None, limit: int
    ) -> StreamHistory | None:
        if stream not in ("tea", "toast/x"):
            return None
        amounts = [10, -3, -2]
        at = 3 if version is None else min(version, 3)
        events = [
            EventSeen(version=place, type="Received", at_ms=NOW_MS, data={"by": amount})
            for place, amount in enumerate(amounts, start=1)
        ]
        return StreamHistory(
            id=stream,
            version=at,
            newest=3,
            events=events[::-1],
            state={"left": sum(amounts[:at])},
        )


class MemorySource:
    def __init__(self) -> None:
        self.topics = MemoryTopics()
        self.groups = MemoryGroups()
        self.queues = MemoryQueues()
        self.declared = MemoryDeclared()
        self.aggregates = MemoryAggregates()


def record(
    offset: int, value: bytes | None = b"{}", *, topic: str = "clicks", key: bytes | None = b"k"
) -> RecordSeen:
    return RecordSeen(
        topic=topic,
        partition=0,
        offset=offset,
        timestamp_ms=NOW_MS,
        key=key,
        value=value,
        headers=(("trace", b"abc"),),
    )
