"""librdkafka's consumer without a group: where it starts, moves, stops and starts again."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.clients.steps import (
    WITHIN_S,
    Sent,
    create_topic,
    eventually,
    numbered,
    offsets_of,
    open_consumer,
    produce,
    read,
    take,
    values_of,
)


@pytest.fixture
def consumer(bootstrap: str, group: str) -> Iterator[Consumer]:
    consumer = open_consumer(bootstrap, group)
    yield consumer
    consumer.close()


def test_earliest_starts_at_the_first_record(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert offsets_of(take(consumer, 10)) == list(range(10))


def test_latest_starts_after_the_last_record(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0, OFFSET_END)
    consumer.assign([partition])

    def sees_a_new_record() -> bool:
        # The end is looked up in the background: send until the lookup has been overtaken.
        produce(bootstrap, topic, [Sent(value=b"new")])
        return bool(consumer.consume(1, timeout=0.5))

    eventually(sees_a_new_record, what="a record produced after the assignment")
    [position] = consumer.position([partition])
    assert position.offset > 10


def test_a_group_without_offsets_follows_the_reset_policy(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    consumer = open_consumer(bootstrap, group, {"auto.offset.reset": "error"})
    consumer.subscribe([topic])
    try:
        with pytest.raises(KafkaException) as refused:
            take(consumer, 1)
        assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_the_end_of_a_partition_is_reported_once_reached(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    consumer = open_consumer(bootstrap, group, {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        take(consumer, 3)
        with pytest.raises(KafkaException) as ended:
            take(consumer, 1)
        assert ended.value.args[0].code() == KafkaError._PARTITION_EOF
    finally:
        consumer.close()


def test_the_watermarks_are_the_first_offset_and_the_next_one(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, WITHIN_S) == (0, 0)
    produce(bootstrap, topic, numbered(4))
    assert consumer.get_watermark_offsets(partition, WITHIN_S) == (0, 4)


def test_a_time_finds_the_first_record_at_or_after_it(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    start_ms = 1_700_000_000_000
    records = [Sent(value=b"x", timestamp_ms=start_ms + 1_000 * n) for n in range(10)]
    # Small batches, so that the answer lies in the middle of the log, not of one batch only.
    produce(bootstrap, topic, records, {"batch.num.messages": 3})

    def offset_at(time_ms: int) -> int:
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], WITHIN_S)
        return found.offset

    assert offset_at(start_ms - 1) == 0
    assert offset_at(start_ms + 4_000) == 4
    assert offset_at(start_ms + 4_001) == 5
    assert offset_at(start_ms + 9_000) == 9
    assert offset_at(start_ms + 9_001) == OFFSET_END


def test_seek_moves_back_and_forth(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert offsets_of(take(consumer, 5)) == [0, 1, 2, 3, 4]
    consumer.seek(TopicPartition(topic, 0, 1))
    assert offsets_of(take(consumer, 2)) == [1, 2]
    consumer.seek(TopicPartition(topic, 0, 8))
    assert offsets_of(take(consumer, 2)) == [8, 9]


def test_an_offset_inside_a_batch_starts_at_that_record(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(100), {"linger.ms": 100})
    consumer.assign([TopicPartition(topic, 0, 57)])
    assert values_of(take(consumer, 3)) == [b"57", b"58", b"59"]


def test_a_paused_partition_is_silent_until_it_is_resumed(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic, partitions=2)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
    consumer.pause([TopicPartition(topic, 0)])
    produce(bootstrap, topic, [Sent(value=b"paused", partition=0)])
    produce(bootstrap, topic, [Sent(value=b"%d" % n, partition=1) for n in range(50)])

    assert {message.partition() for message in take(consumer, 50)} == {1}
    assert consumer.consume(1, timeout=0.5) == []
    consumer.resume([TopicPartition(topic, 0)])
    assert values_of(take(consumer, 1)) == [b"paused"]


def test_an_idle_consumer_is_woken_by_a_new_record_before_its_wait_is_over(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    consumer = open_consumer(bootstrap, group, {"fetch.wait.max.ms": 15_000})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        # The first record proves that the consumer fetches; then its next fetch waits.
        produce(bootstrap, topic, [Sent(value=b"first")])
        take(consumer, 1)
        sent_s = time.monotonic()
        produce(bootstrap, topic, [Sent(value=b"second")])
        assert values_of(take(consumer, 1)) == [b"second"]
        assert time.monotonic() - sent_s < 5
    finally:
        consumer.close()


def test_a_record_larger_than_the_fetch_limit_still_arrives(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    large = b"x" * 200_000
    produce(bootstrap, topic, [Sent(value=large), Sent(value=b"small")])
    limits = {"fetch.message.max.bytes": 1_000, "fetch.max.bytes": 10_000}
    config = {**limits, "message.max.bytes": 10_000, "queued.min.messages": 1}
    assert values_of(read(bootstrap, topic, 2, config=config)) == [large, b"small"]


def test_deleted_records_are_gone_and_a_lost_position_follows_the_reset_policy(
    bootstrap: str, admin: AdminClient, consumer: Consumer, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0, 6)
    deleted = admin.delete_records([partition])[partition].result(WITHIN_S)
    assert deleted.low_watermark == 6
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_S) == (6, 10)

    consumer.assign([TopicPartition(topic, 0, 2)])  # OFFSET_OUT_OF_RANGE, then earliest
    assert offsets_of(take(consumer, 4)) == [6, 7, 8, 9]


def test_a_position_past_the_end_is_out_of_range(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    consumer = open_consumer(bootstrap, group, {"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    try:
        with pytest.raises(KafkaException) as refused:
            take(consumer, 1)
        assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_ten_thousand_records_of_a_compressed_topic_keep_their_order(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10_000), {"compression.type": "lz4"})
    assert offsets_of(read(bootstrap, topic, 10_000)) == list(range(10_000))
