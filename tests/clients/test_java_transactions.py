"""Java's transactions: the newer flow (KIP-890), and Kafka's tools that look into transactions.

A write adds its partition to the transaction by itself, and each transaction has an epoch of its
own. Kafka's TransactionalMessageCopier is the application: it reads, writes and commits its
offsets in transactions, of which it aborts a third at random if told to.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from millstream import Broker
from millstream.broker.wire import ApiKey
from tests.clients.steps import WITHIN_S, Sent, create_topic, numbered, produce, unique_name
from tests.clients.transaction_steps import (
    UNCOMMITTED,
    abort,
    commit,
    kept,
    open_producer,
    send,
    visible,
)
from tests.support.broker_thread import BrokerThread
from tests.support.java_tools import TOOLS, ToolRun, require_compiler, run_class, run_tool
from tests.support.message_copier import copier_arguments
from tests.support.recorded_requests import recorded_requests

# The first test of a checkout may have to fetch the jars, and Java itself.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("kafka_tools")]

CONSOLE_CONSUMER = "consumer.ConsoleConsumer"
TRANSACTION_LOG_FORMATTER = f"{TOOLS}.consumer.TransactionLogMessageFormatter"
OFFSETS_FORMATTER = f"{TOOLS}.consumer.OffsetsMessageFormatter"
SEGMENT_BYTES = 1024 * 1024
BAD_RECORDS = Path(__file__).parents[1] / "support" / "BadRecords.java"
MANY_PARTITIONS = Path(__file__).parents[1] / "support" / "ManyPartitions.java"
ZOMBIE = Path(__file__).parents[1] / "support" / "Zombie.java"


@pytest.fixture
def transactional_id() -> str:
    return unique_name("transactional")


def copy(bootstrap: str, source: str, target: str, transactional_id: str, *flags: str) -> ToolRun:
    arguments = copier_arguments(bootstrap, source, target, transactional_id)
    return run_class(f"{TOOLS}.TransactionalMessageCopier", *arguments, *flags).checked()


def consumed(bootstrap: str, topic: str, count: int, *flags: str) -> list[str]:
    """What a console consumer prints of the first `count` records of the topic."""
    arguments = ("--topic", topic, "--from-beginning", "--max-messages", str(count), *flags)
    deadline = ("--timeout-ms", "20000")
    return run_tool(CONSOLE_CONSUMER, *arguments, *deadline, bootstrap=bootstrap).checked().lines


def stored(bootstrap: str, topic: str, formatter: str) -> list[dict[str, Any]]:
    """The records of an internal topic as Kafka's formatter reads them."""
    count = len(visible(bootstrap, topic, UNCOMMITTED))
    [line] = consumed(bootstrap, topic, count, "--formatter", formatter)
    decoder, found, position = json.JSONDecoder(), [], 0
    while position < len(line):  # one object after the other, nothing in between
        record, position = decoder.raw_decode(line, position)
        found.append(record)
    return found


def transactions_command(bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """The table that it prints, a row each."""
    run = run_tool("TransactionsCommand", *arguments, bootstrap=bootstrap).checked()
    head, *rows = ([cell.strip() for cell in line.split("\t")] for line in run.lines if line)
    return [dict(zip(head, row, strict=True)) for row in rows]


# --- the newer flow ----------------------------------------------------------------------------


def test_java_adds_partitions_by_writing_and_gets_an_epoch_for_each_transaction(
    tmp_path: Path,
) -> None:
    with recorded_requests() as requests, BrokerThread(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(admin, "source")
        create_topic(admin, "target")
        produce(broker.bootstrap, "source", numbered(500))
        requests.counts.clear()
        copy(broker.bootstrap, "source", "target", "copier")
        found = broker.ask(lambda node: node.transactions.find("copier"))
        assert kept(broker.bootstrap, "target") == [b"%d" % number for number in range(500)]
    assert requests.versions(ApiKey.PRODUCE) == {13}
    assert requests.versions(ApiKey.TXN_OFFSET_COMMIT) == {5}
    assert requests.versions(ApiKey.END_TXN) == {5}
    assert requests.versions(ApiKey.ADD_PARTITIONS_TO_TXN) == set()
    assert requests.versions(ApiKey.ADD_OFFSETS_TO_TXN) == set()
    assert requests.counts[ApiKey.END_TXN, 5] == 10
    assert found is not None
    assert found.epoch == 10


@pytest.mark.full
def test_java_asks_again_for_a_lost_answer_and_nothing_happens_twice(tmp_path: Path) -> None:
    with recorded_requests() as requests, BrokerThread(tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(admin, "source")
        create_topic(admin, "target")
        produce(broker.bootstrap, "source", numbered(500))
        requests.lose_next(ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE)
        requests.lose_next(ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN)
        copy(broker.bootstrap, "source", "target", "copier")
        assert not requests.to_lose
        assert kept(broker.bootstrap, "target") == [b"%d" % number for number in range(500)]


def test_the_message_copier_copies_each_message_once_though_it_aborts_at_random(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    target = topic + "-target"
    create_topic(admin, topic)
    create_topic(admin, target)
    produce(bootstrap, topic, numbered(1_000))
    copy(bootstrap, topic, target, transactional_id, "--enable-random-aborts")
    expected = [b"%d" % number for number in range(1_000)]
    assert kept(bootstrap, target) == expected
    everything = visible(bootstrap, target, UNCOMMITTED)
    assert len(everything) > len(expected), "no transaction was aborted"


@pytest.mark.full
def test_requests_in_flight_keep_their_order_from_the_first_of_a_transaction_on(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    """The first write adds its partition; those behind it are on their way already."""
    create_topic(admin, topic)
    count = 20_000
    run_tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--payload-monotonic"),
        *("--throughput", "-1", "--transactional-id", transactional_id),
        *("--transaction-duration-ms", "10", "--command-property", "batch.size=500"),
        bootstrap=bootstrap,
    ).checked()
    assert kept(bootstrap, topic) == [b"%d" % number for number in range(count)]


@pytest.mark.full
@pytest.mark.usefixtures("java_compiler")
def test_a_transaction_over_many_partitions_is_committed_with_five_requests_in_flight(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    """Each partition comes into the transaction with its first write, while others are on their
    way."""
    create_topic(admin, topic, partitions=20)
    arguments = (bootstrap, topic, transactional_id, "20", "30", "2000")
    run = run_class(str(MANY_PARTITIONS), *arguments).checked()
    assert run.lines == ["committed: 30 of 30"]
    assert len(kept(bootstrap, topic, partitions=20)) == 30 * 2_000


@pytest.fixture(scope="module")
def java_compiler() -> None:
    """What runs a Java source file: part of a JDK, not of every Java."""
    require_compiler()


FENCED_AT_COMMIT = ["commit: ProducerFencedException", "abort: ProducerFencedException"]
# A write is told what lets its producer abort; that is when it hears that it is over.
FENCED_AT_WRITE = [
    "write: InvalidProducerEpochException",
    "commit: InvalidProducerEpochException",
    "abort: ProducerFencedException",
]


@pytest.mark.usefixtures("java_compiler")
@pytest.mark.parametrize(
    ("goes_on_with", "told"),
    [
        ("commit", FENCED_AT_COMMIT),
        pytest.param("write", FENCED_AT_WRITE, marks=pytest.mark.full),
    ],
)
def test_a_java_producer_that_was_replaced_is_fenced_and_what_it_left_open_aborted(
    bootstrap: str,
    admin: AdminClient,
    topic: str,
    transactional_id: str,
    goes_on_with: str,
    told: list[str],
) -> None:
    create_topic(admin, topic)
    run = run_class(str(ZOMBIE), bootstrap, topic, transactional_id, goes_on_with).checked()
    assert run.lines == told
    assert kept(bootstrap, topic) == [b"of its successor"]
    assert visible(bootstrap, topic, UNCOMMITTED) == [b"left open", b"of its successor"]


@pytest.mark.full
@pytest.mark.usefixtures("java_compiler")
def test_a_java_producer_learns_which_record_of_its_batch_was_bad(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, config={"cleanup.policy": "compact"})
    good, bad, also_good = run_class(str(BAD_RECORDS), bootstrap, topic).checked().lines
    assert bad.startswith("InvalidRecordException: ")
    assert good == also_good
    assert good.startswith("KafkaException: Failed to append record because it was part of a batch")


# --- the tools ---------------------------------------------------------------------------------


@pytest.mark.full
def test_the_transactions_tool_shows_an_open_transaction(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, [Sent(value=b"plain")])
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"1", b"2")

    rows = transactions_command(bootstrap, "list")
    [listed] = [row for row in rows if row["TransactionalId"] == transactional_id]
    assert listed["TransactionState"] == "Ongoing"
    [described] = transactions_command(
        bootstrap, "describe", "--transactional-id", transactional_id
    )
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionState"] == "Ongoing"
    assert described["TopicPartitions"] == f"{topic}-0"
    assert int(described["TransactionDurationMs"]) >= 0
    rows = transactions_command(
        bootstrap, "describe-producers", "--topic", topic, "--partition", "0"
    )
    [shown] = [row for row in rows if row["ProducerId"] == listed["ProducerId"]]
    assert shown["CurrentTransactionStartOffset"] == "1"
    assert shown["LastSequence"] == "1"
    assert transactions_command(bootstrap, "find-hanging", "--topic", topic) == []
    producer.commit_transaction(WITHIN_S)


def test_the_transactions_tool_shows_an_ended_transaction(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    abort(producer, topic, b"1")
    [described] = transactions_command(
        bootstrap, "describe", "--transactional-id", transactional_id
    )
    assert described["TransactionState"] == "CompleteAbort"
    assert described["TopicPartitions"] == ""
    [shown] = transactions_command(
        bootstrap, "describe-producers", "--topic", topic, "--partition", "0"
    )
    assert shown["CurrentTransactionStartOffset"] == "None"
    assert shown["LastSequence"] == "0"
    assert int(shown["LastTimestamp"]) > 1_700_000_000_000


@pytest.mark.full
def test_a_producer_was_seen_last_when_its_transaction_ended(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    """In the newer flow the marker begins the next epoch, in which there is no batch yet."""
    target = topic + "-target"
    create_topic(admin, topic)
    create_topic(admin, target)
    produce(bootstrap, topic, numbered(10))
    copy(bootstrap, topic, target, transactional_id)
    [shown] = transactions_command(
        bootstrap, "describe-producers", "--topic", target, "--partition", "0"
    )
    assert shown["ProducerEpoch"] == "1"
    assert shown["LastSequence"] == "-1"
    assert int(shown["LastTimestamp"]) > 1_700_000_000_000


@pytest.mark.full
def test_the_transactions_tool_ends_a_transaction_by_force(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"1")
    flags = ("--transactionalId", transactional_id)
    run_tool(
        "TransactionsCommand", "forceTerminateTransaction", *flags, bootstrap=bootstrap
    ).checked()
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(WITHIN_S)
    assert failed.value.args[0].code() == KafkaError._FENCED
    assert kept(bootstrap, topic) == []


@pytest.mark.full
def test_a_console_consumer_leaves_out_what_was_aborted(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    for number in range(6):
        (abort if number % 2 else commit)(producer, topic, b"%d" % number)
    committed = consumed(bootstrap, topic, 3, "--isolation-level", "read_committed")
    assert committed == ["0", "2", "4"]
    assert consumed(bootstrap, topic, 6) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.full
def test_kafkas_formatters_read_what_transactions_leave_in_the_internal_topics(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    target = topic + "-target"
    create_topic(admin, topic)
    create_topic(admin, target)
    produce(bootstrap, topic, numbered(10))
    copy(bootstrap, topic, target, transactional_id)

    states = [
        record["value"]["data"]
        for record in stored(bootstrap, "__transaction_state", TRANSACTION_LOG_FORMATTER)
        if record["key"]["data"]["transactionalId"] == transactional_id
    ]
    # Empty, Ongoing (one or two partitions), PrepareCommit, CompleteCommit.
    assert [state["transactionStatus"] for state in states] == [0, 1, 1, 2, 4]
    assert [state["producerEpoch"] for state in states] == [0, 0, 0, 1, 1]
    taking_part = {one["topic"] for one in states[3]["transactionPartitions"]}
    assert taking_part == {target, "__consumer_offsets"}
    assert states[3]["clientTransactionVersion"] == 2

    offsets = [
        record
        for record in stored(bootstrap, "__consumer_offsets", OFFSETS_FORMATTER)
        if record["key"]["data"]["topic"] == topic
    ]
    assert [record["value"]["data"]["offset"] for record in offsets] == [10]


# --- the files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What aborted and committed transactions leave in several segments, after a clean stop."""
    data_dir = tmp_path_factory.mktemp("data")
    with Broker(data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(admin, "orders", config={"segment.bytes": str(SEGMENT_BYTES)})
        producer = open_producer(broker.bootstrap, "worker")
        for number in range(12):
            values = [b"%d " % number + bytes(1_000)] * 300
            (abort if number % 2 else commit)(producer, "orders", *values)
    return data_dir


def dump(directory: Path, suffix: str, *flags: str) -> ToolRun:
    files = sorted(directory.glob(f"*{suffix}"))
    assert files, f"no {suffix} in {directory}"
    names = ",".join(str(path) for path in files)
    return run_class(f"{TOOLS}.DumpLogSegments", "--files", names, *flags).checked()


def test_dump_log_segments_reads_the_markers(data_dir: Path) -> None:
    dumped = dump(data_dir / "orders-0", ".log", "--deep-iteration", "--print-data-log")
    markers = re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: \d+", dumped.stdout)
    assert markers == ["COMMIT", "ABORT"] * 6
    assert "isTransactional: false" not in dumped.stdout
    assert "isvalid: false" not in dumped.stdout


def test_dump_log_segments_reads_the_aborted_transactions(data_dir: Path) -> None:
    dumped = dump(data_dir / "orders-0", ".txnindex")
    entries = re.findall(
        r"producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)",
        dumped.stdout,
    )
    # 300 records and a marker each; every second one was aborted.
    assert [tuple(map(int, entry)) for entry in entries] == [
        (301 * number, 301 * number + 300, 301 * number + 301) for number in range(1, 12, 2)
    ]


def test_dump_log_segments_reads_the_state_of_the_transactions(data_dir: Path) -> None:
    dumped = dump(data_dir / "__transaction_state-0", ".log", "--transaction-log-decoder")
    states = re.findall(r'"transactionalId":"worker".*"transactionStatus":(\d)', dumped.stdout)
    # Empty; then Ongoing, PrepareCommit, CompleteCommit, or the same with an abort.
    assert states == ["0"] + ["1", "2", "4", "1", "3", "5"] * 6
