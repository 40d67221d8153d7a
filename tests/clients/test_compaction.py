"""Compaction as foreign software sees it: Kafka's own torture test for it, librdkafka, and Kafka's
reader of segment files.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from millstream import Broker
from tests.clients.steps import (
    Sent,
    create_topic,
    end_offset,
    eventually,
    open_consumer,
    produce,
    unique_name,
)
from tests.support.java_tools import run_class, run_tool
from tests.support.steady_load import read_all

# The first test of a checkout may have to fetch the jars, and Java itself.
pytestmark = pytest.mark.timeout(600)

SEGMENT_BYTES = 100_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
OTHER_CODECS = ["none", "gzip", "snappy", "zstd"]
COMPLAINT = re.compile(r"^(?!\|).*(mismatch|invalid|out of order|corrupt)", re.I)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose segments are small, and which compacts as soon as it can."""
    with Broker(
        data_dir=tmp_path_factory.mktemp("data"),
        compaction_check_interval_ms=100,
    ) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 3})
        set_segment_bytes(admin)
        yield running


def set_segment_bytes(admin: AdminClient) -> None:
    """Smaller than the setting allows: Kafka's tester writes little, and says nothing of it."""
    change = ConfigEntry(
        "log.segment.bytes",
        str(SEGMENT_BYTES),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})


@pytest.mark.usefixtures("kafka_tools")
@pytest.mark.full
@pytest.mark.parametrize("codec", CODECS)
def test_kafkas_log_compaction_tester_passes_with_a_real_reduction(
    broker: Broker, codec: str
) -> None:
    run = run_tool(
        "LogCompactionTester",
        *("--messages", "60000", "--duplicates", "20", "--percent-deletes", "15"),
        *("--compression-type", codec, "--sleep", "3"),
        bootstrap=broker.bootstrap,
        timeout_s=180,
    ).checked()
    assert "Data verification is completed" in run.stdout
    reduction = re.search(r"\((-?[\d.]+)% reduction\)", run.stdout)
    assert reduction is not None
    assert float(reduction[1]) > 40, run.stdout


def compacted(admin: AdminClient, **config: str) -> str:
    topic = unique_name("compacted")
    create_topic(
        admin,
        topic,
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            **{name.replace("_", "."): value for name, value in config.items()},
        },
    )
    return topic


def fill(broker: Broker, topic: str, codec: str = "none", *, count: int, keys: int) -> None:
    sent = [
        Sent(
            key=b"%d" % (n % keys), value=b"%s %d " % (codec.encode(), n) + b"%d" % (7**n % 10**300)
        )
        for n in range(count)
    ]
    config = {"compression.type": codec, "batch.num.messages": 50, "enable.idempotence": True}
    produce(broker.bootstrap, topic, sent, config)


def count_left(broker: Broker, topic: str) -> int:
    """The records that a consumer gets who reads from the beginning to the end."""
    consumer = open_consumer(
        broker.bootstrap, unique_name("reader"), {"enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    count = 0
    try:
        while True:
            for message in consumer.consume(1_000, timeout=1):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    return count
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "codec", ["lz4", *(pytest.param(one, marks=pytest.mark.full) for one in OTHER_CODECS)]
)
def test_the_last_value_of_each_key_stays_where_it_was(
    broker: Broker, admin: AdminClient, codec: str
) -> None:
    topic = compacted(admin)
    fill(broker, topic, codec, count=12_000, keys=100)
    assert end_offset(broker.bootstrap, topic) == 12_000
    eventually(lambda: count_left(broker, topic) < 9_000, what="fewer records")
    stored = read_all(broker.bootstrap, topic, 1)
    for record in stored:
        assert record.value.startswith(b"%s %d " % (codec.encode(), record.offset))
    last = {record.offset % 100: record.offset for record in stored}
    assert last == {key: 11_900 + key for key in range(100)}
    assert end_offset(broker.bootstrap, topic) == 12_000


def test_a_record_without_a_key_is_refused(broker: Broker, admin: AdminClient) -> None:
    topic = compacted(admin)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"no key", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    producer.produce(topic, b"a key", key=b"k", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.INVALID_RECORD
    assert errors[1] is None


@pytest.mark.usefixtures("kafka_tools")
def test_kafkas_reader_of_segments_finds_nothing_wrong_with_cleaned_ones(tmp_path: Path) -> None:
    topic = "dumped"
    with Broker(
        data_dir=tmp_path, segment_bytes="1MiB", compaction_check_interval_ms=100
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        create_topic(admin, topic, config=config)
        for number, codec in enumerate(CODECS):
            fill(broker, topic, codec, count=5_000, keys=1_000 + number)
            deleted = [Sent(key=b"gone %d" % n, value=None) for n in range(50)]
            produce(broker.bootstrap, topic, deleted, {"enable.idempotence": True})
            transact(broker.bootstrap, topic, is_commit=number % 2 == 0)
        eventually(lambda: count_left(broker, topic) < 15_000, what="fewer records")
        time.sleep(1)
    directory = tmp_path / f"{topic}-0"
    names: list[str] = []
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        files = sorted(directory.glob(f"*{suffix}"))
        assert files
        names += map(str, files)
    dump = "org.apache.kafka.tools.DumpLogSegments"
    run = run_class(dump, "--files", ",".join(names), "--deep-iteration")
    said = run.checked().lines + run.stderr.splitlines()
    assert [line for line in said if COMPLAINT.search(line)] == []
    assert "deleteHorizonMs: OptionalLong[" in run.stdout
    assert "lastOffset" in run.stdout, "of a producer, from a snapshot"


def transact(bootstrap: str, topic: str, *, is_commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("txn")})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, key=b"t %d" % number, value=b"in a transaction")
    producer.flush(20)
    try:
        if is_commit:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    except KafkaException as error:
        pytest.fail(str(error))
