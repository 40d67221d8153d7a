"""aiokafka, a client in pure Python: other requests and other versions than librdkafka's."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.clients.steps import SESSION_TIMEOUT_MS, WITHIN_S


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run one test's coroutine with a deadline, so that a lost answer cannot hang the suite."""
    asyncio.run(asyncio.wait_for(test, 60))


async def create_topic(bootstrap: str, topic: str, *, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


@asynccontextmanager
async def producing(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(
    bootstrap: str, *topics: str, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=100,
        metadata_max_age_ms=1_000,
        **options,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(WITHIN_S):
        return [await consumer.getone() for _ in range(count)]


async def until_assigned(*expected: tuple[AIOKafkaConsumer, int]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while any(len(c.assignment()) != count for c, count in expected):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def values(messages: Sequence[Any]) -> list[bytes | None]:
    return [message.value for message in messages]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_whole_with_codec(bootstrap: str, topic: str, codec: str | None) -> None:
    async def test() -> None:
        value = b"the mill grinds what the stream brings; " * 50
        headers = [("trace", b"\x00\xff"), ("empty", b"")]
        async with producing(bootstrap, compression_type=codec, acks="all") as producer:
            sent = await producer.send_and_wait(
                topic, value, key=b"key", headers=headers, timestamp_ms=1_600_000_000_123
            )
            await producer.send_and_wait(topic, None, key=b"tombstone")
        async with consuming(bootstrap, topic) as consumer:
            first, second = await take(consumer, 2)
        assert (first.offset, first.key, first.value) == (sent.offset, b"key", value)
        assert (list(first.headers), first.timestamp) == (headers, 1_600_000_000_123)
        assert (second.offset, second.key, second.value) == (1, b"tombstone", None)

    run(test())


def test_a_batch_sent_at_once_keeps_its_order(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        async with producing(bootstrap, linger_ms=10) as producer:
            sent = [await producer.send(topic, b"%d" % n) for n in range(1000)]
            reports = await asyncio.gather(*sent)
        assert [report.offset for report in reports] == list(range(1000))
        async with consuming(bootstrap, topic) as consumer:
            assert values(await take(consumer, 1000)) == [b"%d" % n for n in range(1000)]

    run(test())


def test_an_idempotent_producer_writes_each_record_once(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        async with producing(bootstrap, enable_idempotence=True) as producer:
            for number in range(50):
                await producer.send_and_wait(topic, b"%d" % number)
        async with consuming(bootstrap, topic) as consumer:
            assert values(await take(consumer, 50)) == [b"%d" % n for n in range(50)]
            partition = TopicPartition(topic, 0)
            assert await consumer.end_offsets([partition]) == {partition: 50}

    run(test())


def test_seek_and_times_find_their_record(bootstrap: str, topic: str) -> None:
    async def test() -> None:
        start_ms = 1_700_000_000_000
        async with producing(bootstrap) as producer:
            for number in range(10):
                time_ms = start_ms + 1_000 * number
                await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=time_ms)
        partition = TopicPartition(topic, 0)
        async with consuming(bootstrap) as consumer:
            consumer.assign([partition])
            found = await consumer.offsets_for_times({partition: start_ms + 3_500})
            assert found[partition].offset == 4
            consumer.seek(partition, found[partition].offset)
            assert values(await take(consumer, 2)) == [b"4", b"5"]
            await consumer.seek_to_beginning(partition)
            assert values(await take(consumer, 1)) == [b"0"]

    run(test())


def test_a_group_shares_partitions_and_continues_where_it_committed(
    bootstrap: str, topic: str, group: str
) -> None:
    async def test() -> None:
        await create_topic(bootstrap, topic, partitions=4)
        async with producing(bootstrap) as producer:
            for number in range(40):
                await producer.send_and_wait(topic, b"%d" % number, partition=number % 4)

        async with consuming(bootstrap, topic, group_id=group) as first:
            await until_assigned((first, 4))
            async with consuming(bootstrap, topic, group_id=group) as second:
                await until_assigned((first, 2), (second, 2))
                assert not first.assignment() & second.assignment()
                got = await take(first, 20) + await take(second, 20)
                await first.commit()
                await second.commit()
            await until_assigned((first, 4))  # the second has left
        assert sorted(int(value or b"") for value in values(got)) == list(range(40))

        async with producing(bootstrap) as producer:
            await producer.send_and_wait(topic, b"after", partition=1)
        async with consuming(bootstrap, topic, group_id=group) as successor:
            [message] = await take(successor, 1)
            assert (message.value, message.offset) == (b"after", 10)

    run(test())
