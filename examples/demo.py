"""What Millstream does, shown in half a minute. Run it with `make demo`.

Starts a real broker in its own process, writes and reads through a real Kafka client, kills the
broker with kill -9 in the middle of it all, and shows that nothing was lost. It grows with
the project.
"""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from millstream import Broker

TOPIC = "clicks"
PARTITIONS = 3
RECORDS = 200_000
USERS = [b"ada", b"barbara", b"donald", b"edsger", b"frances", b"grace", b"leslie", b"niklaus"]
console = Console(highlight=False)


def main() -> None:
    console.rule("[bold]Millstream: the stream that does the work")
    started = time.perf_counter()
    with Broker() as broker:
        say(
            f"A broker is ready on {broker.bootstrap} after "
            f"{time.perf_counter() - started:.2f} s, in process {broker.pid} with "
            f"{resident_mb(broker.pid)} MB. Any Kafka client can talk to it."
        )
        create_topic(broker.bootstrap)
        written = produce(broker, RECORDS)
        read = consume(broker.bootstrap, written)
        show(broker.bootstrap, written, read)
    console.rule("[bold]Done")
    say("Next: `millstream broker`, then `millstream --help`; README.md says the rest.")


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
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
            "log_level": 0,  # the crash below is wanted: no words about it
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
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


def say(text: str) -> None:
    console.print(f"[green]>[/green] {text}")


def resident_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        kilobytes = next(line for line in status if line.startswith("VmRSS")).split()[1]
    return int(kilobytes) // 1024


if __name__ == "__main__":
    main()
