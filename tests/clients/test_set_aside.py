"""What a source sets aside, on our broker and on Apache Kafka."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millstream.base.declared import EventTime
from millstream.base.offsets import OffsetRange
from millstream.processing.jobs.job_counts import JobCounts
from millstream.processing.reading.dead_letters import send_letters
from millstream.processing.reading.late_events import LateEvents, LateTally, counts_topic
from millstream.processing.reading.lateness import Fate, Judged
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.topic_read import TopicRead
from millstream.queues.redrive import read_letters, redrive
from millstream.queues.terms import QueueTerms
from millstream.values.decoder import Bad
from tests.clients.steps import Sent, create_topic, eventually, produce, read, unique_name

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
    for job in ("shop.totals", "shop.mails", "shop.totals"):
        job_read = TopicRead(brokers=bootstrap, topics=(topic,), job=job)
        send_letters(job_read, records, [Bad(0, "bad"), Bad(1, "bad")])
        assert counts.dead() == 2
    terms, client = QueueTerms(name=topic), {"bootstrap.servers": bootstrap, "log_level": 3}
    letters = read_letters(terms, client)
    assert [one.groups for one in letters] == [("shop.totals", "shop.mails")] * 2
    assert len(redrive(terms, client, None)) == 2
    assert redrive(terms, client, None) == []
    assert counts.dead() == 2
    assert [one.value() for one in read(bootstrap, topic, 4)[2:]] == [b"a", b"b"]
