"""The metrics of a real broker after known work by real clients: exact values."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from millstream import Broker
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import create_topic, unique_name
from tests.support.protected_broker import ProtectedBroker, add_user
from tests.support.raw_client import RawClient, batch_of
from tests.support.scrape import OPENMETRICS, Scrape
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(metrics_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with two partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    name = unique_name("metrics")
    create_topic(admin, name, partitions=2)
    return name


def produce(broker: Broker, topic: str, count: int, *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, f"{number}".encode(), partition=partition)
    assert producer.flush(20) == 0


def test_what_was_produced_is_counted_by_topic_and_partition(broker: Broker, topic: str) -> None:
    produce(broker, topic, 10, partition=0)
    produce(broker, topic, 5, partition=1)
    scrape = Scrape(broker.metrics_url)
    assert scrape.value("millstream_topic_received_records_total", topic=topic) == 15
    assert scrape.value("millstream_partition_high_watermark", topic=topic, partition="0") == 10
    assert scrape.value("millstream_partition_high_watermark", topic=topic, partition="1") == 5
    assert scrape.value("millstream_partition_start_offset", topic=topic, partition="0") == 0
    sizes = [
        scrape.value("millstream_partition_size_bytes", topic=topic, partition=number) or 0
        for number in "01"
    ]
    assert scrape.value("millstream_topic_received_bytes_total", topic=topic) == sum(sizes)


def test_requests_their_bytes_and_errors_are_counted_by_api(broker: Broker, topic: str) -> None:
    before = Scrape(broker.metrics_url)
    batch = batch_of(b"a", b"b")
    with RawClient(broker.bootstrap) as client:
        assert client.produce(topic, batch).error_code == 0
        assert client.produce("no-such-topic", batch).error_code == 3
        assert client.produce(topic, batch, partition=7).error_code == 3
    after = Scrape(broker.metrics_url)

    def grown(name: str, **labels: str) -> float:
        return (after.value(name, **labels) or 0) - (before.value(name, **labels) or 0)

    assert grown("millstream_requests_total", api="Produce") == 3
    assert grown("millstream_request_duration_seconds_count", api="Produce") == 3
    assert 0 < grown("millstream_request_duration_seconds_sum", api="Produce") < 60
    assert grown("millstream_request_bytes_total", api="Produce") > 3 * len(batch)
    assert grown("millstream_response_bytes_total", api="Produce") > 0
    labels = {"api": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert grown("millstream_request_errors_total", **labels) == 2


def test_what_was_sent_is_counted_by_topic(broker: Broker, topic: str) -> None:
    with RawClient(broker.bootstrap) as client:
        client.produce(topic, batch_of(b"a", b"b"))
        for _ in range(3):
            client.fetch(topic, 0)
        client.fetch(topic, 2)
    scrape = Scrape(broker.metrics_url)
    size = scrape.value("millstream_partition_size_bytes", topic=topic, partition="0") or 0
    assert scrape.value("millstream_topic_sent_bytes_total", topic=topic) == 3 * size


def test_a_group_has_members_and_a_lag(broker: Broker, topic: str) -> None:
    produce(broker, topic, 10)
    group = unique_name("group")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    taken = consumer.consume(10, timeout=20)
    assert len(taken) == 10
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    scrape = Scrape(broker.metrics_url)
    where = {"group": group, "topic": topic, "partition": "0"}
    assert scrape.value("millstream_group_committed_offset", **where) == 7
    assert scrape.value("millstream_group_lag_records", **where) == 3
    assert scrape.value("millstream_group_members", group=group, type="classic") == 1
    consumer.close()
    scrape = Scrape(broker.metrics_url)
    assert scrape.value("millstream_group_members", group=group, type="classic") == 0
    assert scrape.value("millstream_group_lag_records", **where) == 3


def take_all(member: ShareConsumer, count: int) -> None:
    """Take so many records of a share group, and be done with each."""
    taken = 0

    def is_enough() -> bool:
        nonlocal taken
        for message in member.poll(0.2):
            member.acknowledge(message, AcknowledgeType.ACCEPT)
            taken += 1
        return taken >= count

    eventually(is_enough, what=f"{count} records", within_s=20)
    assert set(member.commit_sync(20).values()) == {None}


def test_a_share_group_lags_by_what_is_not_done(broker: Broker, topic: str) -> None:
    produce(broker, topic, 10)
    group = unique_name("queue")
    configure_group(broker.bootstrap, group, share_auto_offset_reset="earliest")
    member = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    member.subscribe([topic])
    take_all(member, 10)
    scrape = Scrape(broker.metrics_url)
    assert scrape.value("millstream_group_members", group=group, type="share") == 1
    member.close()
    produce(broker, topic, 3)
    scrape = Scrape(broker.metrics_url)
    where = {"group": group, "topic": topic, "partition": "0"}
    assert scrape.value("millstream_share_group_start_offset", **where) == 10
    assert scrape.value("millstream_share_group_pending_records", **where) == 0
    assert scrape.value("millstream_group_lag_records", **where) == 3
    sent = scrape.value("millstream_topic_sent_bytes_total", topic=topic) or 0
    assert sent > 0


def test_transactions_are_counted_by_how_they_end(broker: Broker, topic: str) -> None:
    def ended(how: str) -> float:
        return Scrape(broker.metrics_url).value("millstream_transactions_ended_total", how=how) or 0

    committed, aborted = ended("committed"), ended("aborted")
    name = unique_name("transfers")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"one")
    producer.flush(20)
    during = Scrape(broker.metrics_url)
    assert during.value("millstream_transactional_ids", state="Ongoing") == 1
    producer.commit_transaction(20)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topic, b"two")
        producer.flush(20)
        producer.abort_transaction(20)
    assert (ended("committed"), ended("aborted")) == (committed + 1, aborted + 2)
    assert Scrape(broker.metrics_url).value("millstream_oldest_transaction_seconds") == 0


def test_syncs_are_counted_with_their_sizes(broker: Broker, topic: str) -> None:
    eventually(
        lambda: Scrape(broker.metrics_url).value("millstream_unsynced_bytes") == 0,
        what="what other tests wrote is synced",
    )
    before = Scrape(broker.metrics_url)
    batch = batch_of(b"x" * 1000)
    with RawClient(broker.bootstrap) as client:
        for _ in range(5):
            client.produce(topic, batch)
    after = Scrape(broker.metrics_url)

    def grown(name: str) -> float:
        return (after.value(name) or 0) - (before.value(name) or 0)

    assert grown("millstream_sync_duration_seconds_count") == 5
    assert grown("millstream_sync_size_bytes_sum") == 5 * len(batch)
    assert after.value("millstream_unsynced_bytes") == 0


def test_a_connection_that_talks_nonsense_is_counted(broker: Broker) -> None:
    def rejected() -> float:
        scrape = Scrape(broker.metrics_url)
        return scrape.value("millstream_connections_closed_total", reason="rejected") or 0

    before = rejected()
    with RawClient(broker.bootstrap) as client:
        client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert client.is_closed()
    assert rejected() == before + 1


def test_openmetrics_is_served_to_those_who_ask_for_it(broker: Broker, topic: str) -> None:
    plain, other = Scrape(broker.metrics_url), Scrape(broker.metrics_url, accept=OPENMETRICS)
    assert plain.content_type.startswith("text/plain")
    assert other.content_type.startswith("application/openmetrics-text")
    assert other.text.endswith("# EOF\n")
    for scrape in (plain, other):
        assert scrape.value("millstream_partition_segments", topic=topic, partition="1") == 1


def test_the_process_is_described_too(broker: Broker) -> None:
    scrape = Scrape(broker.metrics_url)
    assert (scrape.value("process_resident_memory_bytes") or 0) > 1 << 20
    assert (scrape.value("process_cpu_seconds_total") or 0) > 0
    assert list(scrape.series("millstream_build_info").values()) == [1]


def test_scrapes_during_load_never_go_back_and_miss_nothing(broker: Broker, topic: str) -> None:
    count = 5_000
    load = threading.Thread(target=produce, args=(broker, topic, count))
    load.start()
    seen = []
    while load.is_alive():
        scrape = Scrape(broker.metrics_url)
        seen.append(scrape.value("millstream_topic_received_records_total", topic=topic) or 0)
    load.join()
    assert seen == sorted(seen)
    last = Scrape(broker.metrics_url)
    assert last.value("millstream_topic_received_records_total", topic=topic) == count


def test_what_retention_deletes_is_counted(topic: str) -> None:
    old = batch_of(b"long ago")
    with Broker(metrics_listen="127.0.0.1:0", retention_check_interval_ms="100ms") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(topic, config={"retention.ms": "1000"})
            client.produce(topic, old)

        def deleted(what: str) -> float | None:
            name = f"millstream_retention_deleted_{what}_total"
            return Scrape(broker.metrics_url).value(name)

        eventually(lambda: deleted("segments") == 1, what="the segment is deleted")
        assert deleted("bytes") == len(old)


def test_who_was_kept_out_is_counted(tmp_path: Path) -> None:
    add_user(tmp_path / "data", "eve", "right")
    options = ("--metrics-listen", "127.0.0.1:0")
    broker = ProtectedBroker(tmp_path, *options, sasl="SCRAM-SHA-256", has_tls=False)
    with broker:
        url = broker.read_metrics_url()

        def ask(password: str, *, timeout: float) -> None:
            config = broker.client(sasl_username="eve", sasl_password=password)
            AdminClient(config).list_topics(topic="secret", timeout=timeout)

        def value(name: str, **labels: str) -> float:
            return Scrape(url).value(name, **labels) or 0

        def is_refused() -> bool:
            with contextlib.suppress(KafkaException):
                ask("wrong", timeout=0.5)
            return value("millstream_logins_total", outcome="failed") >= 1

        eventually(is_refused, what="a login fails", within_s=20)
        assert value("millstream_logins_total", outcome="succeeded") == 0
        assert value("millstream_access_denials_total") == 0
        ask("right", timeout=20)  # the denial is in the answer
        assert value("millstream_logins_total", outcome="succeeded") >= 1
        assert value("millstream_access_denials_total") >= 1
