"""`millstream produce`: lines to records.

Idempotent, so that a retry inside the client makes no duplicate. Stops reading at the first bad
line; what was read before it is sent, and said.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import MillstreamError, Rejected
from millstream.base.offsets import OffsetRange
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.connecting import NotAllowed, Watch, client_config, require_not_internal
from millstream.commands.options import BadOption, BadUsage, Brokers, Json, parse_pair
from millstream.commands.output import counted, print_json, say, terminate_as_interrupt
from millstream.commands.records import LineReader, OutgoingRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

FAILURES_SHOWN_MAX = 20
BATCH_BYTES_MAX = 1_000_000  # librdkafka's default
BATCH_HEADER_BYTES = 61  # before the records of a batch (docs of Kafka's RecordBatch v2)
DELIVERY_SECONDS_MAX = 60
PROGRESS_EVERY_RECORDS = 1_000
RATE_RECORDS_MIN = 1_000  # fewer measure the connection's start, not a rate


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    ALL = "all"
    ONE = "1"
    NONE = "0"


# What librdkafka says too briefly.
REASONS = {
    "_UNKNOWN_TOPIC": "no such topic, and the broker does not create it",
    "_UNKNOWN_PARTITION": "the topic has no such partition",
    "_PURGE_QUEUE": "the broker went away before it was sent",
    "_PURGE_INFLIGHT": "the broker went away before it answered; the record may be there",
    "_MSG_TIMED_OUT": f"no answer within {DELIVERY_SECONDS_MAX} s; the record may be there",
    "MSG_SIZE_TOO_LARGE": "larger than the topic's max.message.bytes",
}


def reason_of(code: str, text: str) -> str:
    plain = text.removeprefix("Broker: ").removeprefix("Local: ")
    return f"{REASONS.get(code, plain)} ({code})"


class NotAllDelivered(Rejected):
    def __init__(self, *, topic: str, failed: int, sent: int, reasons: Counter[str]) -> None:
        why = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.most_common())
        super().__init__(
            f"{failed:,} of {counted(sent, 'record')} did not reach {topic}: {why}"
            + ("" if failed == sent else ". The others did: send only these again")
        )
        self.topic, self.failed, self.reasons = topic, failed, reasons


class Delivery:
    """What became of the records: every one that was sent ends as delivered or failed."""

    def __init__(self, topic: str, *, noun: str = "Line", knows_offsets: bool = True) -> None:
        self.topic = topic
        self.noun = noun
        self.knows_offsets = knows_offsets  # with acks=0 the broker does not say
        self.sent = 0
        self.delivered = 0
        self.value_bytes = 0
        self.offsets: dict[int, OffsetRange] = {}
        self.reasons: Counter[str] = Counter()

    @property
    def failed(self) -> int:
        return self.reasons.total()

    def on_report(self, line: int, error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            self._count(message)
            return
        reason = reason_of(error.name(), error.str())
        self.reasons[reason] += 1
        if self.failed <= FAILURES_SHOWN_MAX:
            say(f"{self.noun} {line}: not delivered: {reason}")

    def _count(self, message: "Message") -> None:
        self.delivered += 1
        self.value_bytes += len(message.value() or b"")
        partition, offset = message.partition() or 0, message.offset()
        if offset is not None and offset >= 0 and self.knows_offsets:
            first = self.offsets.get(partition, OffsetRange(start=offset, end=offset)).start
            self.offsets[partition] = OffsetRange(start=min(first, offset), end=offset + 1)


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the records go.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="One record each. Otherwise lines of stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Read lines of this file.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Lines are KEY, this text, VALUE. \\t is a tab."),
    ] = None,
    header: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="A header of every record. Repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    partition: Annotated[
        int | None,
        typer.Option(min=0, metavar="P", help="Otherwise chosen by the key, as Java clients do."),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Lines are JSON objects with key, value, headers, timestamp, partition; "
            "what `consume --json` prints is understood.",
        ),
    ] = False,
    compression: Annotated[
        Compression, typer.Option(metavar="|".join(Compression), help="How batches are packed.")
    ] = Compression.NONE,
    acks: Annotated[
        Acks,
        typer.Option(
            metavar="|".join(Acks),
            help="Who must have a record: all in-sync copies, the leader, nobody.",
        ),
    ] = Acks.ALL,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Send lines, arguments or JSON as records.

    Ends with exit code 1 if any record was not delivered, and says which and why.

    Example: printf 'ada:/home\\n' | millstream produce clicks --key-separator :
    """
    reader = LineReader(
        key=None if key is None else key.encode(),
        key_separator=_separator(key_separator, key=key, json_lines=json_lines),
        headers=tuple(
            (n, v.encode()) for n, v in (parse_pair(h, option="--header") for h in header)
        ),
        partition=partition,
        json_lines=json_lines,
        noun="Value" if values else "Line",
    )
    if values and file:
        raise BadUsage("Give either --file or values, not both")
    require_not_internal([topic])
    with _open_input(values, file) as lines, terminate_as_interrupt():
        cluster = open_cluster(brokers)
        existed = topic in cluster.topic_names()
        if existed and partition is not None:
            cluster.choose_partitions([topic], [partition])
        delivery = Delivery(topic, noun=reader.noun, knows_offsets=acks is not Acks.NONE)
        started = time.monotonic()
        try:
            with _progress(lines, file) as advance:
                _send(cluster, delivery, reader, lines, advance, acks=acks, compression=compression)
        except (MillstreamError, KeyboardInterrupt):
            say(f"Stopped: {counted(delivery.delivered, 'record')} reached {topic}.")
            raise
        seconds = time.monotonic() - started
        if delivery.delivered and not existed:
            _say_created(cluster, topic)
        _report(delivery, seconds=seconds, json=json)


def _say_created(cluster: Cluster, topic: str) -> None:
    partitions = counted(cluster.require_topics([topic])[topic], "partition")
    say(f"Created topic {topic} ({partitions}): it did not exist before.")


def _open_input(
    values: list[str] | None, file: Path | None
) -> AbstractContextManager[Iterable[bytes]]:
    if values:
        return nullcontext([value.encode() for value in values])
    return file.open("rb") if file else nullcontext(sys.stdin.buffer)


def _separator(text: str | None, *, key: str | None, json_lines: bool) -> bytes | None:
    if text is None:
        return None
    if not text or key is not None or json_lines:
        allowed = "some text, without --key or --json-lines"
        raise BadOption(option="--key-separator", value=text, allowed=allowed)
    return text.replace(r"\t", "\t").encode()


def _send(
    cluster: Cluster,
    delivery: Delivery,
    reader: LineReader,
    lines: Iterable[bytes],
    advance: Callable[[int, int], None],
    *,
    acks: Acks,
    compression: Compression,
) -> None:
    """Send every line; when it returns, or raises, no record is in between."""
    from confluent_kafka import Producer

    watch = Watch(cluster.brokers)
    config = _producer_config(cluster, watch, acks=acks, compression=compression)
    producer = Producer(config | {"batch.size": batch_bytes_max(cluster, delivery.topic)})
    try:
        for number, line in enumerate(lines, start=1):
            record = reader.read(line.removesuffix(b"\n"), number)
            _enqueue(producer, watch, delivery, record, number)
            advance(number, len(line))
            if number % PROGRESS_EVERY_RECORDS == 0:
                producer.poll(0)
    finally:
        _drain(producer, watch)


def _producer_config(
    cluster: Cluster, watch: Watch, *, acks: Acks, compression: Compression
) -> dict[str, Any]:
    return client_config(cluster.brokers, watch) | {
        "acks": acks.value,
        "enable.idempotence": acks is Acks.ALL,
        "compression.type": compression.value,
        # librdkafka's own default hashes keys unlike Java, and joins of topics would not meet.
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "message.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
        "topic.metadata.propagation.max.ms": 5_000,
        # The broker's and topic's limit decides, not the client's. (librdkafka's highest value.)
        "message.max.bytes": 1_000_000_000,
    }


def batch_bytes_max(cluster: Cluster, topic: str) -> int:
    """No batch larger than the topic takes.

    A broker refuses a batch as a whole, and librdkafka, unlike Java, does not then send its records
    in smaller ones: many small records would fail for their sum.
    """
    try:
        if topic in cluster.topic_names():
            limit = int(cluster.configs([topic])[topic]["max.message.bytes"].value)
            return max(1, min(BATCH_BYTES_MAX, limit - BATCH_HEADER_BYTES))
    except NotAllowed:  # to write to a topic is not yet to read its configs
        pass
    return BATCH_BYTES_MAX


def _enqueue(
    producer: Any, watch: Watch, delivery: Delivery, record: OutgoingRecord, line: int
) -> None:
    optional: dict[str, Any] = {}
    if record.partition is not None:
        optional["partition"] = record.partition
    if record.timestamp_ms is not None:
        optional["timestamp"] = record.timestamp_ms
    report = partial(delivery.on_report, line)
    while True:
        try:
            producer.produce(
                delivery.topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=report,
                **optional,
            )
        except BufferError:  # the client's queue is full: wait until some are delivered
            producer.poll(0.5)
            watch.check()
        else:
            delivery.sent += 1
            return


def _drain(producer: Any, watch: Watch) -> None:
    """Wait for the last reports. A broker that stays away fails what is left."""
    try:
        while producer.flush(0.5):
            watch.check()
    except BaseException:
        producer.purge()
        producer.flush(1.0)
        raise


@contextmanager
def _progress(lines: Iterable[bytes], file: Path | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while a file or pipe is read at a terminal; otherwise nothing."""
    piped = file is not None or (lines is sys.stdin.buffer and not sys.stdin.isatty())
    if not (piped and sys.stderr.isatty()):
        yield lambda _records, _line_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    size_bytes = file.stat().st_size if file else None
    columns = [TextColumn("{task.fields[records]:,} records"), BarColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size_bytes, records=0)
        read_bytes = 0

        def advance(records: int, line_bytes: int) -> None:
            nonlocal read_bytes
            read_bytes += line_bytes
            if records % PROGRESS_EVERY_RECORDS == 0:
                progress.update(task, completed=read_bytes, records=records)

        yield advance


def _report(delivery: Delivery, *, seconds: float, json: bool) -> None:
    rate = delivery.delivered / seconds if seconds else 0.0
    if json:
        print_json(
            {
                "topic": delivery.topic,
                "delivered": delivery.delivered,
                "failed": delivery.failed,
                "failures": dict(delivery.reasons),
                "value_bytes": delivery.value_bytes,
                "seconds": round(seconds, 3),
                "records_per_second": round(rate),
                "partitions": {
                    str(number): {"first_offset": at.start, "last_offset": at.end - 1}
                    for number, at in sorted(delivery.offsets.items())
                },
            }
        )
    else:
        say(summary(delivery, seconds=seconds))
    if delivery.failed:
        raise NotAllDelivered(
            topic=delivery.topic,
            failed=delivery.failed,
            sent=delivery.sent,
            reasons=delivery.reasons,
        )


def summary(delivery: Delivery, *, seconds: float) -> str:
    """One line. A single record is told its place; many are told their rate."""
    done = f"Sent {counted(delivery.delivered, 'record')} to {delivery.topic}"
    if delivery.delivered == 1 and delivery.offsets:
        ((partition, at),) = delivery.offsets.items()
        return f"{done}: partition {partition}, offset {at.start}"
    if delivery.delivered < RATE_RECORDS_MIN:
        return done
    return f"{done} in {seconds:.1f}s: {delivery.delivered / seconds:,.0f} records/s"
