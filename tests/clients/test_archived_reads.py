"""A topic whose first records are only in its archive is read as if they were still there: on our
broker and on Apache Kafka."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.processing.reading.archived_records import HoleInArchive
from millstream.processing.reading.offset_plan import DataLost
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import (
    BatchLimits,
    StreamPlanner,
    batch_ranges,
)
from millstream.processing.reading.topic_read import TopicRead
from tests.clients.steps import Sent, create_topic, produce
from tests.clients.test_cli_commands import Cli

TIME_MS = 1_750_000_000_000
RECORDS = 60
Delete = Callable[[int], None]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def archive(bootstrap: str, topic: str, place: str) -> Callable[[], Any]:
    return lambda: Cli(bootstrap).run("topics", "archive", topic, "--to", place, "--all")


@pytest.fixture
def delete_before(admin: AdminClient, topic: str) -> Delete:
    """As retention does."""

    def delete(offset: int) -> None:
        for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            answer.result(30)

    return delete


@pytest.fixture
def read(bootstrap: str, admin: AdminClient, topic: str, place: str) -> TopicRead:
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, [numbered(n) for n in range(RECORDS)])
    return TopicRead(brokers=bootstrap, topics=(topic,), archive=place)


def numbered(n: int) -> Sent:
    headers = (("n", b"%d" % n),) if n % 2 else ()
    value = None if n % 7 == 0 else b"%d" % n
    return Sent(key=b"k%d" % n, value=value, headers=headers, timestamp_ms=TIME_MS + n)


def facts_of(message: Message) -> tuple[Any, ...]:
    return (
        *(message.topic(), message.partition(), message.offset(), message.key(), message.value()),
        *(message.headers(), message.timestamp()),
    )


def all_of(read: TopicRead) -> list[tuple[Any, ...]]:
    return [
        facts_of(message)
        for part, within in batch_ranges(read)
        for messages in RangeReader(read).read(part, within)
        for message in messages
    ]


def offsets_of(read: TopicRead) -> list[int]:
    return [fact[2] for fact in all_of(read)]


def test_records_of_archive_and_log_are_the_topics_as_it_was(
    read: TopicRead, archive: Callable[[], Any], delete_before: Delete
) -> None:
    before = all_of(read)
    archive()
    delete_before(40)
    assert all_of(read) == before
    delete_before(RECORDS)  # the log is empty
    assert all_of(read) == before


def test_a_stream_begins_in_the_archive_and_goes_on_in_the_log(
    read: TopicRead, archive: Callable[[], Any], delete_before: Delete, topic: str
) -> None:
    archive()
    delete_before(40)
    planner = StreamPlanner(read)
    first = planner.first_position()
    assert first[topic]["offsets"] == {"0": 0}
    reached = planner.next_position(first, BatchLimits(records_max=50))
    assert reached[topic]["offsets"] == {"0": 50}


def test_a_time_before_the_log_is_found_in_the_archive(
    read: TopicRead, archive: Callable[[], Any], delete_before: Delete, bootstrap: str, topic: str
) -> None:
    archive()
    delete_before(40)

    def since(n: int) -> list[int]:
        at = datetime.fromtimestamp((TIME_MS + n) / 1000, UTC)
        timed = TopicRead(
            brokers=bootstrap, topics=(topic,), archive=read.archive, starting=at.isoformat()
        )
        return offsets_of(timed)

    assert since(15) == list(range(15, RECORDS))
    assert since(45) == list(range(45, RECORDS))


def test_a_hole_between_archive_and_log_is_an_error_unless_it_may_be_skipped(
    read: TopicRead, archive: Callable[[], Any], delete_before: Delete, bootstrap: str, topic: str
) -> None:
    archive()
    produce(bootstrap, topic, [numbered(n) for n in range(RECORDS, RECORDS + 20)])
    delete_before(RECORDS + 10)
    with pytest.raises(HoleInArchive, match=r"\[60, 70\) are in neither"):
        batch_ranges(read)
    with pytest.raises(HoleInArchive):
        StreamPlanner(read).first_position()
    skipping = TopicRead(brokers=bootstrap, topics=(topic,), archive=read.archive, on_loss="skip")
    assert offsets_of(skipping) == list(range(RECORDS + 10, RECORDS + 20))


def test_a_job_at_the_end_of_the_log_does_not_mind_an_archive_that_lags(
    read: TopicRead, delete_before: Delete, topic: str
) -> None:
    planner = StreamPlanner(read)  # nothing is archived, and nothing deleted yet
    reached = planner.next_position(planner.first_position(), BatchLimits())
    delete_before(40)
    assert planner.next_position(reached, BatchLimits())[topic]["offsets"] == {"0": RECORDS}
    reached[topic]["offsets"] = {"0": 5}
    with pytest.raises(DataLost, match=r"\[5, 40\) were deleted"):
        planner.next_position(reached, BatchLimits())


def test_the_archive_of_another_topic_of_that_name_is_not_read(
    read: TopicRead,
    archive: Callable[[], Any],
    delete_before: Delete,
    bootstrap: str,
    admin: AdminClient,
    topic: str,
) -> None:
    archive()
    admin.delete_topics([topic])[topic].result(30)
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, [numbered(n) for n in range(10)])
    delete_before(5)
    with pytest.raises(HoleInArchive, match="not archived"):
        batch_ranges(read)
