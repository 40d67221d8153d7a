"""Partitions by name, "events/0", and positions in them, to and from what librdkafka takes."""

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Message, TopicPartition

from tests.faults.consistency.history import Read

EVENTS, COPIES = "events", "copies"
PARTITIONS = {EVENTS: 3, COPIES: 2}


def all_partitions(*topics: str) -> list[str]:
    return [f"{topic}/{number}" for topic in topics for number in range(PARTITIONS[topic])]


def split_name(name: str) -> tuple[str, int]:
    topic, _, partition = name.partition("/")
    return topic, int(partition)


def name_of(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"


def topic_partitions(positions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(*split_name(name), at) for name, at in positions.items()]


def next_positions(reads: Iterable[Read]) -> dict[str, int]:
    return {read.partition: read.offset + 1 for read in reads}


def first_positions(reads: Sequence[Read]) -> dict[str, int]:
    return {read.partition: read.offset for read in reversed(reads)}


def read_of(message: Message) -> Read:
    value, offset = message.value(), message.offset()
    assert value is not None
    assert offset is not None
    return Read(f"{message.topic()}/{message.partition()}", offset, value.decode())
