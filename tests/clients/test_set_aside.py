"""What a source sets aside, on our broker and on Apache Kafka."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millstream.base.declared import EventTime
from millstream.base.offsets import OffsetRange
from millstream.processing.jobs.job_counts import JobCounts
from millstream.processing.reading.dead_letters import send_letters
from millstream.processing.reading.late_events import LateEvents, LateTally, counts_topic
from millstream.processing.reading.lateness import Fate, Judged
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from millstream.queues.redrive import read_letters, redrive
from millstream.queues.terms import QueueTerms
from millstream.values.decoder import Bad
from tests.clients.steps import (
    Sent,
    create_topic,
    eventually,
    numbered,
    produce,
    read,
    unique_name,
    values_of,
)

# What brokers take if not told otherwise (max.message.bytes), less the head of a batch.
VALUE_BYTES_MAX = 1_048_588 - 100


@pytest.mark.parametrize("suffix", [".dead", ".late"])
def test_the_largest_record_that_a_topic_takes_can_be_set_aside(
    bootstrap: str, admin: AdminClient, suffix: str
) -> None:
    """With headers that say where it was it is larger still."""
    topic = unique_name("orders")
    create_topic(admin, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000})
    producer.produce(topic, b"x" * VALUE_BYTES_MAX)
    producer.flush()
    records = read(bootstrap, topic, 1)
    send_letters(
        TopicRead(brokers=bootstrap, topics=(topic,)), records, [Bad(0, "bad")], suffix=suffix
    )
    (letter,) = read(bootstrap, topic + suffix, 1)
    assert len(letter.value() or b"") == VALUE_BYTES_MAX


def test_counts_of_late_events_begin_anew_when_their_topic_is_deleted(
    bootstrap: str, admin: AdminClient
) -> None:
    job = unique_name("job")
    terms = EventTime(column="at")
    late = TopicRead(
        brokers=bootstrap, topics=("orders",), event_time=terms, job=job, source="orders"
    )

    def count(*, start: int) -> None:
        within = OffsetRange(start=start, end=start + 5)
        task = LateEvents(late, Partition("orders", 0), within, watermark_ms=5)
        task.take([], Judged({Fate.DROPPED: [0, 1]}))
        task.count()

    tally = LateTally(bootstrap, {}, job=job)
    for start in (0, 5, 10):
        count(start=start)
    assert tally.counts() == {"orders": {Fate.DROPPED: 6}}
    admin.delete_topics([counts_topic(job)])[counts_topic(job)].result()
    eventually(lambda: counts_topic(job) not in admin.list_topics().topics, what="it is gone")
    count(start=15)
    assert tally.counts() == {"orders": {Fate.DROPPED: 2}}


def test_a_record_that_several_jobs_could_not_read_counts_and_is_put_back_once(
    bootstrap: str, admin: AdminClient
) -> None:
    topic = unique_name("orders")
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, [Sent(value=b"a"), Sent(value=b"b")])
    records = read(bootstrap, topic, 2)
    counts = JobCounts(bootstrap, {}, job="shop.totals", topics=[topic])
    assert counts.dead() == 0
    for job in ("shop.totals", "shop.mails", "shop.totals", "shop.mails"):
        give_up(bootstrap, records, job=job)
        assert counts.dead() == 2
    assert values_of(everything(bootstrap, f"{topic}.dead")) == [b"a", b"b"]
    terms, client = QueueTerms(name=topic), {"bootstrap.servers": bootstrap, "log_level": 3}
    letters = read_letters(terms, client)
    assert [one.groups for one in letters] == [("shop.totals", "shop.mails")] * 2
    assert len(redrive(terms, client, None)) == 2
    assert redrive(terms, client, None) == []
    assert counts.dead() == 2
    assert values_of(read(bootstrap, topic, 4)[2:]) == [b"a", b"b"]
    give_up(bootstrap, records, job="shop.late_comer")
    assert redrive(terms, client, None) == []
    assert [len(one.groups) for one in read_letters(terms, client)] == [3, 3]


def test_jobs_that_meet_a_record_at_the_same_time_write_one_letter(
    bootstrap: str, admin: AdminClient
) -> None:
    topic = unique_name("orders")
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, numbered(50))
    records = read(bootstrap, topic, 50)
    jobs = [f"shop.{name}" for name in ("totals", "mails", "stock", "alerts")]
    at_once = Barrier(len(jobs))

    def meet(job: str) -> None:
        at_once.wait()
        give_up(bootstrap, records, job=job)

    with ThreadPoolExecutor(len(jobs)) as threads:
        list(threads.map(meet, jobs))
    assert len(everything(bootstrap, f"{topic}.dead")) == 50
    letters = read_letters(QueueTerms(name=topic), {"bootstrap.servers": bootstrap})
    assert {frozenset(one.groups) for one in letters} == {frozenset(jobs)}


def test_a_letter_is_written_again_when_its_topic_was_deleted_or_trimmed(
    bootstrap: str, admin: AdminClient
) -> None:
    """Also if the topic has as many other letters since."""
    topic = unique_name("orders")
    dead = f"{topic}.dead"
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, numbered(4))
    records = read(bootstrap, topic, 4)
    give_up(bootstrap, records[:2], job="shop.totals")
    admin.delete_topics([dead])[dead].result()
    eventually(lambda: dead not in admin.list_topics().topics, what="it is gone")
    create_topic(admin, dead)
    produce(bootstrap, dead, [Sent(value=b"other")] * 2)
    give_up(bootstrap, records[:2], job="shop.totals")
    assert values_of(everything(bootstrap, dead)) == [b"other", b"other", b"0", b"1"]
    place = TopicPartition(dead, 0, 3)
    admin.delete_records([place])[place].result()
    give_up(bootstrap, records, job="shop.totals")
    assert values_of(everything(bootstrap, dead)) == [b"1", b"0", b"2", b"3"]


def give_up(bootstrap: str, records: list[Message], *, job: str) -> None:
    topic = records[0].topic() or ""
    bad = [Bad(row, "bad") for row in range(len(records))]
    send_letters(TopicRead(brokers=bootstrap, topics=(topic,), job=job), records, bad)


def everything(bootstrap: str, topic: str) -> list[Message]:
    """All records that are there now."""
    wanted = TopicRead(brokers=bootstrap, topics=(topic,), read_committed=False)
    found = (RangeReader(wanted).read(part, within) for part, within in batch_ranges(wanted))
    return [record for lists in found for records in lists for record in records]
