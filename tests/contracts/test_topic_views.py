"""Views in compacted topics, with a real broker: Millstream's, and Apache Kafka."""

import json
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from millstream import Broker
from millstream.base.errors import Retryable
from millstream.base.log_clients import Topics
from millstream.base.ports import Fenced
from millstream.base.topic_terms import UnfitTopic
from millstream.schemas.declaration import schema_of
from millstream.views.store import Home, NotInThisStore
from millstream.views.stores.topic.ledger import Transaction
from millstream.views.stores.topic.reader import NotARowOfTheView, read_notes
from millstream.views.stores.topic.store import Topic, TopicOfOthers, TopicStore, TopicView
from millstream.views.stores.topic.tail import TopicTail
from millstream.views.table_layout import BadView
from tests.contracts.view_store_contract import (
    COUNTS,
    OpenStore,
    StoreContract,
    changes,
    receipt,
    rows,
)
from tests.support.waiting import eventually

PARTITIONS = 3
WAIT_SECONDS = 60.0


def opener(bootstrap: str) -> OpenStore:
    place = uuid.uuid4().hex[:8]
    client = {"bootstrap.servers": bootstrap}

    def store(*, key: list[str], view: str = "counts") -> TopicStore:
        return TopicStore(client, f"{view}-{place}", view=view, key=key, partitions=PARTITIONS)

    return store


class TopicContract(StoreContract):
    refuses: ClassVar[frozenset[str]] = frozenset({"MAP<DATE, TIMESTAMP>"})


class TestMillstream(TopicContract):
    @pytest.fixture
    def store(self, millstream_broker: Broker) -> OpenStore:
        return opener(millstream_broker.bootstrap)


@pytest.mark.full
class TestApacheKafka(TopicContract):
    @pytest.fixture
    def store(self, apache_kafka: str) -> OpenStore:
        return opener(apache_kafka)


@pytest.fixture
def topic() -> str:
    return f"counts-{uuid.uuid4().hex[:8]}"


def counts_in(broker: Broker, topic: str) -> TopicStore:
    client = {"bootstrap.servers": broker.bootstrap}
    return TopicStore(client, topic, view="counts", key=["url"], partitions=PARTITIONS)


def claimed(store: TopicStore, generation: int = 1) -> tuple[TopicView, int]:
    writer = store.writer(generation)
    return writer, writer.claim("counts", schema_of(COUNTS))


def records_in(broker: Broker, topic: str) -> list[tuple[str, Any]]:
    """What any client finds in the topic: keys and values, those of a partition in order."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "test", "log_level": 0}
    config |= {"enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, "nothing came"
        error = message.error()
        if error is None:
            value = message.value()
            found.append(((message.key() or b"").decode(), value and json.loads(value)))
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()
    return found


class TestTheTopic:
    def test_any_client_can_follow_it(self, millstream_broker: Broker, topic: str) -> None:
        writer, epoch = claimed(counts_in(millstream_broker, topic))
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1), ("/a", 1)))
        writer.write(receipt(epoch=epoch, batch=1), changes(("/", None, "delete")))
        found = records_in(millstream_broker, topic)
        assert sorted(found, key=lambda one: (one[0], one[1] is None)) == [
            ("/", {"url": "/", "count": 1}),
            ("/", None),
            ("/a", {"url": "/a", "count": 1}),
        ]
        writer.close()

    def test_a_rebuild_comes_to_it_as_the_difference(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        old, epoch = claimed(store)
        old.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1), ("/same", 1), ("/old", 1)))
        before = records_in(millstream_broker, topic)
        new, epoch = claimed(store, generation=2)
        table = rows(COUNTS, ("/", 2), ("/same", 1), ("/new", 1))
        new.write(receipt(epoch=epoch, batch=0, query="b"), table)
        assert records_in(millstream_broker, topic) == before, "a rebuild shows nothing"
        new.serve()
        came = [one for one in records_in(millstream_broker, topic) if one not in before]
        assert sorted(came, key=str) == [
            ("/", {"url": "/", "count": 2}),
            ("/new", {"url": "/new", "count": 1}),
            ("/old", None),
        ]
        store.serve(1)
        assert store.reader().scan() == old_rows(("/", 1), ("/old", 1), ("/same", 1))
        store.serve(2)
        assert store.reader().scan() == old_rows(("/", 2), ("/new", 1), ("/same", 1))
        for one in (old, new):
            one.close()

    def test_topics_of_generations_that_went_are_gone(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        topics = Topics({"bootstrap.servers": millstream_broker.bootstrap})
        for generation in (1, 2, 3):
            writer, _ = claimed(store, generation)
            writer.serve()
            writer.close()
        there = {name for name in topics.partitions() if topic in name}
        assert there == {topic, f"_views-g2.{topic}", f"_views.{topic}"}
        store.drop()
        assert {name for name in topics.partitions() if topic in name} == {f"_views.{topic}"}

    def test_records_of_others_are_not_replaced(
        self, millstream_broker: Broker, millstream_topic: str
    ) -> None:
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        producer.produce(millstream_topic, b"an order")
        producer.flush()
        with pytest.raises(TopicOfOthers, match=f"topic {millstream_topic} holds records"):
            claimed(counts_in(millstream_broker, millstream_topic))

    def test_a_rebuild_leaves_topics_of_others_alone(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        others = [counts_in(millstream_broker, f"{topic}.g{number}") for number in (1, 2)]
        view, beside = counts_in(millstream_broker, topic), [claimed(one) for one in others]
        for writer, epoch in beside:
            writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/precious", 1)))
        for generation in (1, 2, 3):
            own, _ = claimed(view, generation)
            own.serve()
            own.close()
        view.drop()
        for one, (writer, _) in zip(others, beside, strict=True):
            assert one.reader().scan() == old_rows(("/precious", 1))
            writer.close()

    @pytest.mark.parametrize("name", ["_views.counts", "_views-g2.counts"])
    def test_a_name_that_is_reserved_is_refused(self, name: str) -> None:
        home = Home(app="shop", data=Path("unused"), client={"bootstrap.servers": "unused"})
        with pytest.raises(BadView, match=f"give it another topic than {name}"):
            Topic(name).open("counts", ("url",), home)

    def test_a_record_that_is_no_row_is_named(self, millstream_broker: Broker, topic: str) -> None:
        store = counts_in(millstream_broker, topic)
        writer, epoch = claimed(store)
        producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
        for number in range(PARTITIONS):
            producer.produce(topic, b"not a row", key=b"/x", partition=number)
        producer.flush()
        urls = [(f"/{number}", number) for number in range(30)]  # some in each partition
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, *urls))
        with pytest.raises(NotARowOfTheView, match=f"'/x' of topic {topic} is no row"):
            store.reader().scan()
        writer.close()


def old_rows(*found: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"url": url, "count": count} for url, count in found]


class TestOneStep:
    def test_readers_see_whole_batches(self, millstream_broker: Broker, topic: str) -> None:
        """Every batch replaces all rows, in all partitions: two numbers would be half of one."""
        store = counts_in(millstream_broker, topic)
        writer, epoch = claimed(store)
        done = threading.Event()
        urls = [f"/{number:03}" for number in range(300)]

        def write() -> None:
            for batch in range(20):
                table = rows(COUNTS, *((url, batch) for url in urls))
                writer.write(receipt(epoch=epoch, batch=batch), table)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        reads = store.reader()
        seen: set[int] = set()
        while not done.is_set() or not seen:
            found = {row["count"] for row in reads.scan()}
            found_by_key = {row and row["count"] for row in reads.get_many(urls)}
            assert len(found) <= 1, "half of a batch"
            assert len(found_by_key) <= 1, "half of a batch"
            seen |= found
        thread.join()
        assert {row["count"] for row in reads.scan()} == {19}
        for one in (writer, reads):
            one.close()

    def test_a_reader_stops_where_a_batch_ends(self, millstream_broker: Broker, topic: str) -> None:
        """Though the next one is there already."""
        client = {"bootstrap.servers": millstream_broker.bootstrap}
        writer, epoch = claimed(counts_in(millstream_broker, topic))
        ends = []
        for batch in range(3):
            table = rows(COUNTS, *((f"/{number}", batch) for number in range(30)))
            writer.write(receipt(epoch=epoch, batch=batch), table)
            ends.append(read_notes(client, topic).kept[1].ends)
        tail = TopicTail(client, topic)
        for batch in range(3):
            found = [json.loads(message.value() or b"") for message in tail.read_to(ends[batch])]
            assert [row["count"] for row in found] == [batch] * 30
        for one in (writer, tail):
            one.close()

    @pytest.mark.parametrize("step", ["delivered", "commit"])
    def test_a_batch_that_fails_on_its_way_is_not_there(
        self, millstream_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        writer, epoch = claimed(store)
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))

        def fail(_transaction: Transaction) -> None:
            raise OSError("planned")

        with monkeypatch.context() as planted:
            planted.setattr(Transaction, step, fail)
            with pytest.raises(OSError, match="planned"):
                writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        assert store.reader().scan() == old_rows(("/", 1))
        assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 3)))
        assert store.reader().scan() == old_rows(("/", 3))
        writer.close()


CHILD = """
import os, sys
from millstream.schemas.declaration import schema_of
from millstream.views.stores.topic.ledger import Transaction
from millstream.views.stores.topic.store import TopicStore
from tests.contracts.view_store_contract import COUNTS, receipt, rows

bootstrap, topic, step = sys.argv[1:]
store = TopicStore({"bootstrap.servers": bootstrap}, topic, view="counts", key=["url"])
writer = store.writer(1)
epoch = writer.claim("counts", schema_of(COUNTS))
writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
print("ready", flush=True)
sys.stdin.readline()
if step == "die":
    Transaction.commit = lambda transaction: os.kill(os.getpid(), 9)
try:
    writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 666)))
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


class Child:
    """A run of the job in a process of its own, which has claimed the view and written batch 0."""

    def __init__(self, broker: Broker, topic: str, *, step: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, broker.bootstrap, topic, step],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def goes_on(self) -> str:
        """Let it write batch 1; what it says at its end."""
        said, _ = self._process.communicate("go\n", timeout=WAIT_SECONDS)
        return said


class TestWhoWrites:
    @pytest.mark.full
    def test_a_run_in_another_process_is_fenced_by_the_broker(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        zombie = Child(millstream_broker, topic, step="write")
        writer, epoch = claimed(store)
        assert zombie.goes_on().startswith("Fenced job counts: a newer run of it has started")
        assert store.reader().scan() == old_rows(("/", 1))
        assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        writer.close()

    @pytest.mark.full
    def test_a_run_that_is_killed_before_its_commit_has_written_nothing(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        assert Child(millstream_broker, topic, step="die").goes_on() == ""
        assert store.reader().scan() == old_rows(("/", 1))
        writer, epoch = claimed(store)
        assert not writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 9)))
        assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        assert store.reader().scan() == old_rows(("/", 2))
        writer.close()

    def test_another_job_that_tries_does_not_disturb(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        writer, epoch = claimed(counts_in(millstream_broker, topic))
        other = counts_in(millstream_broker, topic).writer(1)
        with pytest.raises(Exception, match="is written by job counts, not by other"):
            other.claim("other", schema_of(COUNTS))
        assert writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        for one in (writer, other):
            one.close()

    def test_a_rollback_from_elsewhere_does_not_end_the_run(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        """What it writes then goes beside the topic, whose readers see the other generation."""
        store = counts_in(millstream_broker, topic)
        old, epoch = claimed(store)
        old.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        new, epoch = claimed(store, generation=2)
        new.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 10)))
        new.serve()
        store.serve(1)
        assert new.write(receipt(epoch=epoch, batch=1, query="b"), rows(COUNTS, ("/", 11)))
        assert store.reader().scan() == old_rows(("/", 1))
        assert store.reader(2).scan() == old_rows(("/", 11))
        store.serve(2)
        assert store.reader().scan() == old_rows(("/", 11))
        for one in (old, new):
            one.close()

    def test_a_run_from_before_a_drop_is_fenced(
        self, millstream_broker: Broker, topic: str
    ) -> None:
        store = counts_in(millstream_broker, topic)
        zombie, old = claimed(store)
        zombie.write(receipt(epoch=old, batch=0), rows(COUNTS, ("/", 1)))
        store.drop()
        writer, _ = claimed(store)
        with pytest.raises(Fenced):
            zombie.write(receipt(epoch=old, batch=0, query="b"), rows(COUNTS, ("/", 666)))
        assert store.reader().scan() == []
        for one in (zombie, writer):
            one.close()


@pytest.mark.full
def test_a_broker_that_goes_away_and_comes_back() -> None:
    with Broker() as broker:
        store = counts_in(broker, "counts")
        writer, epoch = claimed(store)
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        reads = store.reader()
        assert reads.scan() == old_rows(("/", 1))
        broker.kill()
        broker.start()
        eventually(lambda: is_written(writer, epoch), what="batch 1", within_s=WAIT_SECONDS)
        assert reads.scan() == old_rows(("/", 2))
        for one in (writer, reads):
            one.close()


def is_written(writer: TopicView, epoch: int) -> bool:
    """As a job does it that starts again after an error that passes."""
    try:
        writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
    except Retryable:
        return False
    return True


def test_the_topic_has_the_views_name_unless_one_is_given(tmp_path: Path) -> None:
    home = Home(app="shop", data=tmp_path, client={"bootstrap.servers": "kafka:9092"})
    assert Topic().open("counts", ("url",), home).place == "topic counts at kafka:9092"
    assert Topic("c").open("counts", ("url",), home).place == "topic c at kafka:9092"
    past = Home(app="shop", data=tmp_path, client=home.client, history_ms=1000)
    with pytest.raises(NotInThisStore, match="which has no history"):
        Topic().open("counts", ("url",), past)


def test_a_view_is_not_kept_in_a_topic_that_loses_its_rows(
    millstream_broker: Broker, topic: str
) -> None:
    """Another client has asked for it first: it is there, empty, with a week of retention."""
    Topics({"bootstrap.servers": millstream_broker.bootstrap}).make(
        topic, partitions=PARTITIONS, config={}
    )
    with pytest.raises(UnfitTopic, match=f"Topic {topic} is not compacted"):
        claimed(counts_in(millstream_broker, topic))
