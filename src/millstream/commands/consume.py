"""`millstream consume`: records to lines.

Without a group it reads by itself, leaves no trace on the broker and needs no right but to read
the topic. With a group it commits what it has printed, after it is printed. Follows until Ctrl-C,
unless told where to stop.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.offsets import OffsetRange
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.connecting import Partition, Watch, bootstrap, client_config, error_from
from millstream.commands.options import BadOption, Brokers
from millstream.commands.output import (
    abandon_stdout,
    counted,
    reader_is_gone,
    say,
    terminate_as_interrupt,
)
from millstream.commands.positions import (
    AtOffset,
    AtTime,
    Earliest,
    Last,
    Latest,
    Position,
    parse_position,
)
from millstream.commands.records import (
    PLACEHOLDER_HELP,
    Header,
    IncomingRecord,
    line_writer,
    to_json_line,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

POLL_SECONDS = 0.2
BATCH_RECORDS_MAX = 500
# Group coordinators expire a consumer that has no session for this long; a crash is noticed so.
SESSION_TIMEOUT_MS = 10_000
# librdkafka asks for a group's coordinator, and tells if it may not, also where no group is needed.
NOT_OF_THE_GROUP = "GROUP_AUTHORIZATION_FAILED"


class Stop:
    """When to end: after `max_records`, at `ends` of every partition, or at `deadline_ms`.

    Without any of them, never.
    """

    def __init__(
        self,
        *,
        max_records: int | None = None,
        ends: dict[Partition, int] | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        self.left = max_records
        self.ends = ends
        self.deadline_ms = deadline_ms
        self._open = None if ends is None else set(ends)

    def wants(self, part: Partition, offset: int) -> bool:
        """Whether a record is within bounds; it then counts as taken."""
        end = None if self.ends is None else self.ends.get(part)
        if end is not None:
            self.reached(part, offset + 1)
            if offset >= end:
                return False
        if self.left is not None:
            if self.left == 0:
                return False
            self.left -= 1
        return True

    def reached(self, part: Partition, offset: int) -> None:
        """Everything before `offset` was seen: aborted records and markers have no message."""
        if self.ends is not None and self._open is not None and offset >= self.ends.get(part, 0):
            self._open.discard(part)

    def is_due(self, *, now_ms: int, ours: frozenset[Partition]) -> bool:
        """`ours` are the partitions that this consumer reads; others may end elsewhere."""
        if self.deadline_ms is not None and now_ms >= self.deadline_ms:
            return True
        at_ends = self._open is not None and bool(ours) and not self._open & ours
        return self.left == 0 or at_ends


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="What to read.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest, latest, an offset, -N for the last N of each partition, or a time: "
            '"1h ago", 2026-07-01T12:00Z. With --group it counts only for partitions where the '
            "group has no committed offset; `groups reset` moves it.  [default: earliest]",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Stop at: latest (what is there now), or a time."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after that many records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="Read as a member of this group, and commit what is printed."
        ),
    ] = None,
    partition: Annotated[
        list[int], typer.Option(min=0, metavar="P", help="Only this partition. Repeatable.")
    ] = [],  # noqa: B006 - typer copies it
    format: Annotated[
        str,
        typer.Option(metavar="FORMAT", help=f"value, columns, or a template: {PLACEHOLDER_HELP}."),
    ] = "value",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Show records of open transactions too.")
    ] = False,
    brokers: Brokers = None,
) -> None:
    """Print records, oldest first in each partition.

    Follows until Ctrl-C, unless --until or --max says where to stop.

    Example: millstream consume clicks --from earliest --until latest --json
    """
    now_ms = time.time_ns() // 1_000_000
    write = to_json_line if json else line_writer(format)
    place = _start(start, group=group, now_ms=now_ms)
    if group and partition:
        raise BadOption(option="--partition", value=str(partition[0]), allowed="it without --group")
    cluster = open_cluster(brokers)
    offsets = cluster.available(
        cluster.choose_partitions(topics, partition, creatable=True), uncommitted=uncommitted
    )
    if group and start is not None:
        _note_committed(group, start, offsets.keys() & cluster.committed(group).keys())
    _note_past_the_end(place, offsets)
    stop = _stop(cluster, until, max_records, offsets, now_ms=now_ms)
    watch = Watch(cluster.brokers)
    config = _consumer_config(cluster, watch, group, place, uncommitted=uncommitted)
    starts = None if group else cluster.resolve(place, offsets)
    for part, offset in (starts or {}).items():
        stop.reached(part, offset)
    if sys.stderr.isatty() and sys.stdout.isatty() and until is None and max_records is None:
        say(f"Following {', '.join(topics)}. Ctrl-C ends.")
    with terminate_as_interrupt():
        _run(config, topics, starts, stop, watch, write)


def _start(text: str | None, *, group: str | None, now_ms: int) -> Position:
    if group is None:
        allowed: tuple[type[Position], ...] = (Earliest, Latest, AtOffset, AtTime, Last)
        return parse_position(text or "earliest", option="--from", allowed=allowed, now_ms=now_ms)
    if text not in (None, "earliest", "latest"):
        allowed_here = "earliest or latest (for partitions that the group never committed), or "
        allowed_here += f"move the group first with `millstream groups reset {group} --to PLACE`"
        raise BadOption(option="--from", value=str(text), allowed=allowed_here)
    return Latest() if text == "latest" else Earliest()


def _note_committed(group: str, start: str, committed: Collection[Partition]) -> None:
    if committed:
        say(
            f"Group {group} goes on from its committed offsets in "
            f"{counted(len(committed), 'partition')}: --from {start} counts only where it has "
            f"none. To move it: `millstream groups reset {group} --to {start}`."
        )


def _note_past_the_end(place: Position, offsets: Mapping[Partition, OffsetRange]) -> None:
    if not isinstance(place, AtOffset):
        return
    short = [
        f"{p} ends at {within.end}" for p, within in offsets.items() if place.offset > within.end
    ]
    if short:
        say(f"--from {place.offset} is past the end: {', '.join(short)}. Reading from there.")


def _stop(
    cluster: Cluster,
    until: str | None,
    max_records: int | None,
    offsets: dict[Partition, OffsetRange],
    *,
    now_ms: int,
) -> Stop:
    if until is None:
        return Stop(max_records=max_records)
    place = parse_position(until, option="--until", allowed=(Latest, AtTime), now_ms=now_ms)
    if isinstance(place, AtTime) and place.time_ms > now_ms:
        return Stop(max_records=max_records, deadline_ms=place.time_ms)
    return Stop(max_records=max_records, ends=cluster.resolve(place, offsets))


def _consumer_config(
    cluster: Cluster, watch: Watch, group: str | None, place: Position, *, uncommitted: bool
) -> dict[str, Any]:
    return client_config(cluster.brokers, watch) | {
        "group.id": group or "millstream-cli",  # not joined, and not committed to, without --group
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "latest" if isinstance(place, Latest) else "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "fetch.wait.max.ms": 100,
    }


def _run(
    config: dict[str, Any],
    topics: list[str],
    starts: dict[Partition, int] | None,
    stop: Stop,
    watch: Watch,
    write: Callable[[IncomingRecord], bytes],
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(config)
    try:
        if starts is None:
            consumer.subscribe(topics)
        else:
            consumer.assign([TopicPartition(p.topic, p.number, at) for p, at in starts.items()])
        while not stop.is_due(now_ms=time.time_ns() // 1_000_000, ours=_ours(consumer)):
            messages = consumer.consume(BATCH_RECORDS_MAX, POLL_SECONDS)
            if not messages:
                watch.check()
            taken = _taken(
                messages, stop, watch, None if starts is not None else config["group.id"]
            )
            if not taken and reader_is_gone():
                break  # on a quiet topic no write would tell
            _write(write(_record(message)) for message in taken)
            if starts is None:
                _store(consumer, taken)
    except KeyboardInterrupt:
        pass  # how following ends
    except BrokenPipeError:
        abandon_stdout()  # `| head` has seen enough
    finally:
        consumer.close()


def _ours(consumer: Any) -> frozenset[Partition]:
    return frozenset(Partition(at.topic, at.partition) for at in consumer.assignment())


def _taken(
    messages: "Iterable[Message]", stop: Stop, watch: Watch, group: str | None
) -> "list[Message]":
    taken = []
    for message in messages:
        part = Partition(str(message.topic()), message.partition() or 0)
        error, offset = message.error(), message.offset() or 0
        if error is None:
            if stop.wants(part, offset):
                taken.append(message)
        elif error.name() == "_PARTITION_EOF":
            stop.reached(part, offset)
        elif group is None and error.name() == NOT_OF_THE_GROUP:
            continue
        elif not error.retriable() and error.name() != "_ALL_BROKERS_DOWN":
            doing = f"read {part}" if message.topic() else f"read as a member of group {group}"
            raise error_from(error, doing=doing, brokers=bootstrap(watch.brokers))
    return taken


def _record(message: "Message") -> IncomingRecord:
    kind, time_ms = message.timestamp()
    return IncomingRecord(
        topic=str(message.topic()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=time_ms if kind else None,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=_headers(message.headers()),
    )


def _headers(headers: Any) -> tuple[Header, ...]:
    return tuple((name, _bytes(value)) for name, value in headers or ())


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _write(lines: Iterable[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()


def _store(consumer: Any, printed: "list[Message]") -> None:
    """Only what was printed is committed: the next run starts after it."""
    from confluent_kafka import KafkaException

    for message in {(m.topic(), m.partition()): m for m in printed}.values():
        try:
            consumer.store_offsets(message)
        except KafkaException as error:
            if error.args[0].name() != "_STATE":  # a rebalance took the partition: its new owner
                raise  # starts at the last commit and prints these again
