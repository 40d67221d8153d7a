"""What the log promises, shown in some seconds: python examples/log_demo.py [RECORDS]

Starts a real broker in its own process, writes and reads through a real Kafka client, kills the
broker with kill -9 in the middle of it all, and shows that nothing was lost. Then it counts the
records exactly once, in transactions, through another kill -9, and works off a queue with workers
of which one is killed. Captures, jobs and views are shown by `millstream demo`.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable

import log_demo_queue
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from millstream import Broker

TOPIC = "clicks"
TOTALS = "clicks-per-user"
PARTITIONS = 3
RECORDS = 200_000
USERS = [b"ada", b"barbara", b"donald", b"edsger", b"frances", b"grace", b"leslie", b"niklaus"]
# How the demo's clients live through a broker that is killed and comes back.
PATIENT = {
    "log_level": 0,  # the crash is wanted: no words about it
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    # librdkafka 2.16 waits for ever in send_offsets_to_transaction if it starts over from its
    # bootstrap addresses meanwhile (its issue 5511).
    "metadata.recovery.strategy": "none",
}
console = Console(highlight=False)


def main(count: int = RECORDS) -> None:
    console.rule("[bold]Millstream: the stream that does the work")
    started = time.perf_counter()
    with Broker() as broker:
        say(
            f"A broker is ready on {broker.bootstrap} after "
            f"{time.perf_counter() - started:.2f} s, in process {broker.pid} with "
            f"{resident_mb(broker.pid)} MB. Any Kafka client can talk to it."
        )
        create_topic(broker.bootstrap)
        written = produce(broker, count)
        read = consume(broker.bootstrap, written)
        show(broker.bootstrap, written, read)
        count_exactly_once(broker, written)
        show_totals(broker.bootstrap, read)
        work_off_a_queue(broker.bootstrap)
    console.rule("[bold]Done")
    say("Next: `millstream demo`, then `millstream --help`; README.md says the rest.")


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted = NewTopic(TOTALS, 1, 1, config={"cleanup.policy": "compact"})
    for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1), compacted]).values():
        created.result()
    say(f"Topic [bold]{TOPIC}[/bold] has {PARTITIONS} partitions.")


def produce(broker: Broker, count: int) -> int:
    """Write `count` records; half way, kill the broker with kill -9 and start it again."""
    acknowledged, failed = 0, 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged, failed
        acknowledged += error is None
        failed += error is not None

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,  # a retry is stored once
            "linger.ms": 5,
        }
        | PATIENT
    )
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("writing", total=count)
        for number in range(count):
            send(producer, number, on_delivery)
            if number == count // 2:
                producer.poll(0)
                broker.kill()
                recovery = time.perf_counter()
                broker.start()
                recovery = time.perf_counter() - recovery
            if number % 1000 == 0:
                producer.poll(0)
                progress.update(bar, completed=acknowledged)
        producer.flush(60)
    say(
        f"{acknowledged:,} records are acknowledged, {failed} failed. Acknowledged means synced to "
        f"disk: half way, the broker was killed with [bold]kill -9[/bold], and was back after "
        f"{recovery:.2f} s."
    )
    return acknowledged


def send(
    producer: Producer, number: int, on_delivery: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(
                TOPIC,
                key=USERS[number % len(USERS)],
                value=b'{"click": %d}' % number,
                on_delivery=on_delivery,
            )
            return
        except BufferError:  # the client's own queue is full: let it send
            producer.poll(0.05)


def consume(bootstrap: str, expected: int) -> list[int]:
    """Read everything back; returns the numbers in the order they came."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    numbers: list[int] = []
    started = time.perf_counter()
    while len(numbers) < expected and time.perf_counter() - started < 60:
        messages = consumer.consume(10_000, timeout=0.2)
        numbers += [int((message.value() or b"")[10:-1]) for message in messages]
    consumer.commit(asynchronous=False)
    consumer.close()
    return numbers


def show(bootstrap: str, written: int, read: list[int]) -> None:
    say(
        f"Read back {len(read):,} records: {written - len(set(read))} lost, "
        f"{len(read) - len(set(read))} twice."
    )
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo"})
    table = Table("partition", "first offset", "end offset", "read by group demo", "lag")
    for number in range(PARTITIONS):
        partition = TopicPartition(TOPIC, number)
        first, end = reader.get_watermark_offsets(partition)
        committed = max(first, reader.committed([partition])[0].offset)
        table.add_row(*(f"{value:,}" for value in (number, first, end, committed, end - committed)))
    reader.close()
    console.print(table)
    if len(set(read)) != written or len(read) != written:
        raise SystemExit("The demo found lost or doubled records: this is a bug, please report it.")


# --- exactly once -------------------------------------------------------------------------------


def count_exactly_once(broker: Broker, expected: int) -> None:
    """Count clicks per user: totals and the position in the input go into one transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "counter",
            "group.protocol": "consumer",  # the broker assigns the partitions (KIP-848)
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | PATIENT
    )
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "counter"} | PATIENT
    )
    consumer.subscribe([TOPIC])
    producer.init_transactions(30)
    totals: Counter[bytes] = Counter()
    transactions = 0
    while totals.total() < expected:
        messages = consumer.consume(20_000, timeout=1)
        if not messages:
            continue
        totals.update(message.key() or b"" for message in messages)
        producer.begin_transaction()
        for user, clicks in totals.items():
            producer.produce(TOTALS, key=user, value=json.dumps({"clicks": clicks}))
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
        if transactions == 3:
            broker.kill()
            broker.start()
        producer.commit_transaction(60)
        transactions += 1
    consumer.close()
    say(
        f"Counted per user in {transactions} transactions, each with its totals and its position "
        "in the input; in the middle of one the broker was killed again."
    )


def show_totals(bootstrap: str, read: list[int]) -> None:
    expected = Counter(USERS[number % len(USERS)].decode() for number in read)
    totals = dict(latest_totals(bootstrap))
    table = Table("user", "clicks counted", "clicks sent")
    for user, clicks in sorted(totals.items()):
        table.add_row(user, f"{clicks:,}", f"{expected[user]:,}")
    console.print(table)
    if totals != dict(expected):
        raise SystemExit("The demo counted wrong: this is a bug, please report it.")


def latest_totals(bootstrap: str) -> list[tuple[str, int]]:
    """Everything that was committed to the totals, oldest first."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    partition = TopicPartition(TOTALS, 0, 0)
    _, end = reader.get_watermark_offsets(partition)
    reader.assign([partition])
    totals: list[tuple[str, int]] = []
    while reader.position([partition])[0].offset < end:
        totals += [
            ((message.key() or b"").decode(), json.loads(message.value() or b"")["clicks"])
            for message in reader.consume(1_000, timeout=0.2)
        ]
    reader.close()
    return totals


# --- a work queue -------------------------------------------------------------------------------


def work_off_a_queue(bootstrap: str) -> None:
    with console.status("working off a queue"):
        done, deaths = log_demo_queue.run_queue(bootstrap)
    say(
        f"A queue of {log_demo_queue.JOBS} mails, {log_demo_queue.WORKERS} workers, one killed "
        f"while it had a job: {len(done)} are done, {done.total() - len(done)} of them twice; "
        f"{len(deaths)} is a dead letter ({deaths[0] if deaths else '?'})."
    )
    if len(done) + len(deaths) != log_demo_queue.JOBS:
        raise SystemExit("The demo lost a job: this is a bug, please report it.")


# --- a view on Spark ----------------------------------------------------------------------------


def say(text: str) -> None:
    console.print(f"[green]>[/green] {text}")


def resident_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        kilobytes = next(line for line in status if line.startswith("VmRSS")).split()[1]
    return int(kilobytes) // 1024


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
