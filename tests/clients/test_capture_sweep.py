"""The keys that a load finds left in a topic, on real brokers."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from millstream.capture.envelope import TRUNCATED_KEY
from millstream.capture.load.sweep import SweptTopics
from millstream.capture.log_writer import LogWriter


@pytest.fixture
def writer(bootstrap: str, topic: str) -> Iterator[LogWriter]:
    with closing(LogWriter({"bootstrap.servers": bootstrap}, f"of-{topic}")) as one:
        one.open()
        one.make_topic(topic, is_compacted=True, partitions=3)
        yield one


@pytest.fixture
def topics(bootstrap: str, writer: LogWriter) -> Iterator[SweptTopics]:
    with closing(SweptTopics({"bootstrap.servers": bootstrap}, flush=writer.flush)) as one:
        yield one


def put(writer: LogWriter, topic: str, keys: str, value: bytes | None = b"{}") -> None:
    for key in keys:
        writer.put(topic, key.encode(), value)


def left(topics: SweptTopics, topic: str, ends: tuple[int, ...]) -> str:
    with closing(topics.keys_left(topic, ends)) as keys:
        return b"".join(keys.take(1000)).decode()


def test_a_key_is_left_unless_it_was_written_since_or_deleted(
    writer: LogWriter, topics: SweptTopics, topic: str
) -> None:
    put(writer, topic, "abcdefgh")
    put(writer, topic, "b", None)
    writer.commit()
    ends = topics.ends(topic)
    put(writer, topic, "cx")
    put(writer, topic, "d", None)
    writer.commit()
    assert left(topics, topic, ends) == "aefgh"


def test_the_ends_count_what_was_written_and_is_not_committed(
    writer: LogWriter, topics: SweptTopics, topic: str
) -> None:
    put(writer, topic, "ab")
    ends = topics.ends(topic)
    put(writer, topic, "bc")
    writer.commit()
    assert sum(ends) == 2
    assert left(topics, topic, ends) == "a"


def test_what_was_aborted_is_not_there_and_replaces_nothing(
    writer: LogWriter, topics: SweptTopics, topic: str
) -> None:
    put(writer, topic, "ab")
    writer.commit()
    put(writer, topic, "z")
    ends = topics.ends(topic)
    put(writer, topic, "a")
    writer.flush()
    writer.abort()
    assert left(topics, topic, ends) == "ab"


def test_the_record_of_a_truncate_is_of_no_row(
    writer: LogWriter, topics: SweptTopics, topic: str
) -> None:
    put(writer, topic, "a")
    writer.put_everywhere(topic, TRUNCATED_KEY, b'{"op":"t"}')
    writer.commit()
    assert left(topics, topic, topics.ends(topic)) == "a"


def test_a_topic_that_is_not_there_has_no_ends_and_is_not_made(
    topics: SweptTopics, admin: AdminClient
) -> None:
    assert topics.ends("nowhere") == ()
    assert left(topics, "nowhere", ()) == ""
    assert "nowhere" not in admin.list_topics(timeout=30).topics
