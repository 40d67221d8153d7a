"""librdkafka's producer: what it sends is what a consumer reads, in every form it can send it."""

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.clients.steps import (
    WITHIN_S,
    Sent,
    create_topic,
    end_offset,
    numbered,
    offsets_of,
    produce,
    read,
    values_of,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Long and repetitive, so that a codec really is used: librdkafka sends a batch uncompressed
# when compression would not make it smaller.
COMPRESSIBLE = b"the mill grinds what the stream brings; " * 50


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_whole_with_codec(
    bootstrap: str, admin: AdminClient, topic: str, codec: str
) -> None:
    create_topic(admin, topic)
    sent = [
        Sent(value=COMPRESSIBLE, key=b"key", headers=(("trace", b"\x00\xff"), ("empty", b""))),
        Sent(value=None, key=b"tombstone"),
        Sent(value=b"", key=None, headers=(("null", None),)),
        Sent(value=COMPRESSIBLE * 2, key=b"", timestamp_ms=1_600_000_000_123),
    ]

    produce(bootstrap, topic, sent, {"compression.type": codec, "linger.ms": 50})

    got = read(bootstrap, topic, len(sent))
    assert values_of(got) == [record.value for record in sent]
    assert [message.key() for message in got] == [record.key for record in sent]
    assert [tuple(message.headers() or ()) for message in got] == [
        record.headers for record in sent
    ]
    assert offsets_of(got) == [0, 1, 2, 3]
    assert got[3].timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_123)


def test_a_record_without_a_timestamp_gets_the_time_of_sending(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    [report] = produce(bootstrap, topic, [Sent(value=b"now")])
    [message] = read(bootstrap, topic, 1)
    assert message.timestamp() == report.timestamp()
    assert message.timestamp()[1] > 1_700_000_000_000


def test_a_delivery_report_names_the_offset_that_a_consumer_sees(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    reports = produce(bootstrap, topic, numbered(2, start=3))
    assert offsets_of(reports) == [3, 4]
    assert offsets_of(read(bootstrap, topic, 5)[3:]) == [3, 4]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_record_arrives_in_order_with_acks(
    bootstrap: str, admin: AdminClient, topic: str, acks: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(500), {"acks": acks, "batch.num.messages": 7})
    assert values_of(read(bootstrap, topic, 500)) == [b"%d" % n for n in range(500)]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    config = {"enable.idempotence": True, "batch.num.messages": 10}
    reports = produce(bootstrap, topic, numbered(1000), config)
    assert offsets_of(reports) == list(range(1000))
    assert values_of(read(bootstrap, topic, 1000)) == [b"%d" % n for n in range(1000)]


def test_two_idempotent_producers_do_not_disturb_each_other(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
    first, second = Producer(config), Producer(config)
    for number in range(20):
        for producer in (first, second):
            producer.produce(topic, b"%d" % number)
            assert producer.flush(WITHIN_S) == 0
    got = values_of(read(bootstrap, topic, 40))
    assert got == [b"%d" % number for number in range(20) for _ in range(2)]


def test_a_record_goes_to_the_partition_that_it_names(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, partitions=3)
    produce(bootstrap, topic, [Sent(value=b"%d" % n, partition=n) for n in range(3)])
    got = read(bootstrap, topic, 3, partitions=3)
    assert {message.partition(): message.value() for message in got} == {0: b"0", 1: b"1", 2: b"2"}


def test_equal_keys_share_a_partition_and_keep_their_order(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, partitions=4)
    keys = [b"user-%d" % number for number in range(16)]
    sent = [Sent(key=key, value=b"%d" % turn) for turn in range(5) for key in keys]
    # murmur2 is what Java's producer uses, so the two agree about where a key lives.
    produce(bootstrap, topic, sent, {"partitioner": "murmur2_random"})

    got = read(bootstrap, topic, len(sent), partitions=4)
    assert len({message.partition() for message in got}) > 1
    for key in keys:
        of_key = [message for message in got if message.key() == key]
        assert len({message.partition() for message in of_key}) == 1
        assert values_of(of_key) == [b"0", b"1", b"2", b"3", b"4"]


def test_producing_to_an_unknown_topic_creates_it(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [Sent(value=b"first")])
    assert values_of(read(bootstrap, topic, 1)) == [b"first"]


def test_a_record_at_the_topics_limit_is_taken_and_a_larger_one_is_refused(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, config={"max.message.bytes": "10000"})
    produce(bootstrap, topic, [Sent(value=b"x" * 9_900)])
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [Sent(value=b"x" * 10_001)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert end_offset(bootstrap, topic) == 1


def test_a_partition_that_does_not_exist_is_refused(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [Sent(value=b"x", partition=7)])
    assert refused.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
