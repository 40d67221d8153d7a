"""librdkafka's transactions: all of one or nothing, across partitions, topics and offsets.

It speaks the older of the two flows: partitions and offsets are added by requests of their own,
and the epoch stays from one transaction to the next. The newer one is tried with Java.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from millstream import Broker
from millstream.broker.wire import ApiKey
from tests.clients.steps import (
    WITHIN_S,
    create_topic,
    eventually,
    numbered,
    offsets_of,
    open_consumer,
    produce,
    read,
    take,
    unique_name,
    values_of,
)
from tests.clients.transaction_steps import (
    COMMITTED,
    UNCOMMITTED,
    abort,
    assigned,
    commit,
    committed_offset,
    kept,
    latest,
    open_producer,
    read_to_end,
    send,
    send_and_commit,
    visible,
)
from tests.support.broker_thread import BrokerThread
from tests.support.recorded_requests import recorded_requests
from tests.support.steady_load import PATIENT

# The smallest segment that Kafka allows.
SEGMENT_BYTES = 1024 * 1024
# Kafka looks for transactions that took too long every ten seconds.
TIMED_OUT_WITHIN_S = 30.0
# Long enough for a record that must not come to have come.
QUIET_S = 1.0


@pytest.fixture
def transactional_id() -> str:
    return unique_name("transactional")


# --- who sees what -----------------------------------------------------------------------------


def test_a_committed_transaction_is_seen_and_an_aborted_one_is_not(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    commit(producer, topic, b"1", b"2")
    abort(producer, topic, b"3", b"4")
    commit(producer, topic, b"5")
    assert kept(bootstrap, topic) == [b"1", b"2", b"5"]


def test_an_aborted_transaction_is_there_for_who_wants_to_see_it(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    abort(producer, topic, b"1")
    commit(producer, topic, b"2")
    assert visible(bootstrap, topic, UNCOMMITTED) == [b"1", b"2"]


def test_a_marker_takes_an_offset_and_is_no_record(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    commit(producer, topic, b"1", b"2")
    abort(producer, topic, b"3")
    commit(producer, topic, b"4")
    got = read(bootstrap, topic, 4, config=UNCOMMITTED)
    assert offsets_of(got) == [0, 1, 3, 5]


def test_a_transaction_without_records_leaves_nothing_behind(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        end(WITHIN_S)
    assert latest(admin, topic, IsolationLevel.READ_UNCOMMITTED) == 0
    commit(producer, topic, b"1")
    assert kept(bootstrap, topic) == [b"1"]


def test_a_transaction_is_whole_across_topics_and_partitions(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    other = topic + "-other"
    create_topic(admin, topic, partitions=3)
    create_topic(admin, other)
    producer = open_producer(bootstrap, transactional_id)

    def send_everywhere(value: bytes) -> None:
        for number in range(3):
            send(producer, topic, value, partition=number)
        send(producer, other, value)

    producer.begin_transaction()
    send_everywhere(b"kept")
    producer.commit_transaction(WITHIN_S)
    producer.begin_transaction()
    send_everywhere(b"dropped")
    assert visible(bootstrap, topic, COMMITTED, 3) == [b"kept"] * 3
    producer.abort_transaction(WITHIN_S)

    assert kept(bootstrap, topic, 3) == [b"kept"] * 3
    assert kept(bootstrap, other) == [b"kept"]
    assert visible(bootstrap, other, UNCOMMITTED) == [b"kept", b"dropped"]


def test_interleaved_producers_are_told_apart(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    """Each turn the records of all lie mixed in both partitions; every second one aborts."""
    create_topic(admin, topic, partitions=2)
    names = ["ada", "grace", "joan"]
    producers = {name: open_producer(bootstrap, unique_name(name)) for name in names}
    expected: list[list[bytes]] = [[], []]
    for turn in range(6):
        for producer in producers.values():
            producer.begin_transaction()
        for step in range(4):
            for name, producer in producers.items():
                send(producer, topic, b"%s %d %d" % (name.encode(), turn, step), partition=step % 2)
        for index, (name, producer) in enumerate(producers.items()):
            if (turn + index) % 2:
                producer.abort_transaction(WITHIN_S)
                continue
            producer.commit_transaction(WITHIN_S)
            for step in range(4):
                expected[step % 2].append(b"%s %d %d" % (name.encode(), turn, step))
    got = kept(bootstrap, topic, 2)
    for number in range(2):
        of_partition = [value or b"" for value in got if int((value or b"")[-1:]) % 2 == number]
        assert sorted(of_partition) == sorted(expected[number])
        for name in names:  # and in the order of sending
            own = [value for value in of_partition if value.startswith(name.encode())]
            assert own == [value for value in expected[number] if value.startswith(name.encode())]


def test_a_plain_producer_and_a_transaction_share_a_partition(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"aborted")
    produce(bootstrap, topic, numbered(2))
    send(producer, topic, b"aborted too")
    producer.abort_transaction(WITHIN_S)
    assert kept(bootstrap, topic) == [b"0", b"1"]


@pytest.mark.parametrize("is_commit", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_transaction_may_be_larger_than_a_segment(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str, is_commit: bool
) -> None:
    create_topic(admin, topic, config={"segment.bytes": str(SEGMENT_BYTES)})
    producer = open_producer(bootstrap, transactional_id)
    commit(producer, topic, b"before")
    values = [b"%04d " % number + bytes(1_000) for number in range(4_000)]
    producer.begin_transaction()
    send(producer, topic, *values)
    end = producer.commit_transaction if is_commit else producer.abort_transaction
    end(WITHIN_S)
    commit(producer, topic, b"after")
    counted = values if is_commit else []
    assert kept(bootstrap, topic) == [b"before", *counted, b"after"]
    assert visible(bootstrap, topic, UNCOMMITTED) == [b"before", *values, b"after"]


def test_a_topic_that_is_deleted_in_a_transaction_does_not_hold_up_its_end(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    other = topic + "-other"
    create_topic(admin, topic)
    create_topic(admin, other)
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"1")
    send(producer, other, b"gone")
    admin.delete_topics([other])[other].result(WITHIN_S)
    producer.commit_transaction(WITHIN_S)
    assert kept(bootstrap, topic) == [b"1"]
    commit(producer, topic, b"2")
    assert kept(bootstrap, topic) == [b"1", b"2"]


# --- the last stable offset --------------------------------------------------------------------


def test_a_committed_reader_stops_at_an_open_transaction_and_goes_on_after_its_end(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(1))
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"open")
    produce(bootstrap, topic, numbered(1, start=1))

    reader = assigned(bootstrap, topic, COMMITTED)
    assert values_of(read_to_end(reader)) == [b"0"]
    assert reader.poll(QUIET_S) is None
    producer.commit_transaction(WITHIN_S)
    assert values_of(take_records(reader, 2)) == [b"open", b"1"]
    reader.close()


def take_records(consumer: Consumer, count: int) -> list[Message]:
    """The next records; that the end was reached in between is no news."""
    taken: list[Message] = []
    deadline = time.monotonic() + WITHIN_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            taken.append(message)
    return taken


def test_the_oldest_open_transaction_holds_back_what_younger_ones_committed(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    old = open_producer(bootstrap, unique_name("old"))
    young = open_producer(bootstrap, unique_name("young"))
    old.begin_transaction()
    send(old, topic, b"old")
    commit(young, topic, b"young")
    assert visible(bootstrap, topic, COMMITTED) == []
    assert visible(bootstrap, topic, UNCOMMITTED) == [b"old", b"young"]
    old.abort_transaction(WITHIN_S)
    assert kept(bootstrap, topic) == [b"young"]


def test_the_end_of_a_partition_depends_on_the_isolation_level(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(3))
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send(producer, topic, b"open")

    def ends() -> tuple[int, int]:
        committed = latest(admin, topic, IsolationLevel.READ_COMMITTED)
        return committed, latest(admin, topic, IsolationLevel.READ_UNCOMMITTED)

    assert ends() == (3, 4)
    reader = open_consumer(bootstrap, unique_name("reader"), COMMITTED)
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_S) == (0, 3)
    reader.close()
    producer.commit_transaction(WITHIN_S)
    eventually(lambda: ends() == (5, 5), what="the commit marker")


# --- fencing -----------------------------------------------------------------------------------


def assert_fenced(failed: pytest.ExceptionInfo[KafkaException]) -> None:
    error = failed.value.args[0]
    assert error.code() == KafkaError._FENCED, error
    assert error.fatal()


def test_a_newer_producer_fences_the_older_one_and_aborts_what_it_left_open(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    zombie = open_producer(bootstrap, transactional_id)
    commit(zombie, topic, b"before")
    zombie.begin_transaction()
    send(zombie, topic, b"left open")
    successor = open_producer(bootstrap, transactional_id)
    assert kept(bootstrap, topic) == [b"before"]
    with pytest.raises(KafkaException) as failed:
        zombie.commit_transaction(WITHIN_S)
    assert_fenced(failed)
    commit(successor, topic, b"after")
    assert kept(bootstrap, topic) == [b"before", b"after"]


@pytest.mark.full
def test_a_newer_producer_fences_an_older_one_that_is_idle(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    zombie = open_producer(bootstrap, transactional_id)
    commit(zombie, topic, b"before")
    open_producer(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as failed:
        commit(zombie, topic, b"after")
    assert_fenced(failed)
    assert kept(bootstrap, topic) == [b"before"]


def test_a_fenced_producer_can_write_nothing_more(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    zombie = open_producer(bootstrap, transactional_id)
    zombie.begin_transaction()
    send(zombie, topic, b"1")
    open_producer(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as failed:
        send_and_commit(zombie, topic, b"2")
    assert_fenced(failed)
    assert visible(bootstrap, topic, UNCOMMITTED) == [b"1"]
    assert kept(bootstrap, topic) == []


@pytest.mark.timeout(180)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    bootstrap: str, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    timeouts = {"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000}
    producer = open_producer(bootstrap, transactional_id, **timeouts)
    producer.begin_transaction()
    send(producer, topic, b"too slow")
    eventually(
        lambda: latest(admin, topic, IsolationLevel.READ_COMMITTED) == 2,
        within_s=TIMED_OUT_WITHIN_S,
        what="an abort marker",
    )
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(WITHIN_S)
    assert_fenced(failed)
    assert kept(bootstrap, topic) == []
    commit(open_producer(bootstrap, transactional_id), topic, b"again")
    assert kept(bootstrap, topic) == [b"again"]


def test_a_transaction_timeout_above_the_brokers_limit_is_refused(
    bootstrap: str, transactional_id: str
) -> None:
    with pytest.raises(KafkaException) as failed:
        open_producer(bootstrap, transactional_id, **{"transaction.timeout.ms": 900_001})
    assert failed.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# --- offsets -----------------------------------------------------------------------------------


def send_offset(producer: Producer, consumer: Consumer, topic: str, offset: int) -> None:
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), WITHIN_S
    )


@pytest.fixture
def member(bootstrap: str, admin: AdminClient, topic: str, group: str) -> Iterator[Consumer]:
    """A member of the group that has read ten records and committed nothing."""
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    consumer = open_consumer(bootstrap, group, COMMITTED)
    consumer.subscribe([topic])
    take(consumer, 10)
    yield consumer
    consumer.close()


def test_offsets_of_a_transaction_count_from_its_commit_on(
    bootstrap: str, member: Consumer, topic: str, group: str, transactional_id: str
) -> None:
    producer = open_producer(bootstrap, transactional_id)
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer.begin_transaction()
    send_offset(producer, member, topic, 7)
    assert committed_offset(bootstrap, group, topic, UNCOMMITTED) == 3
    producer.commit_transaction(WITHIN_S)
    assert committed_offset(bootstrap, group, topic, COMMITTED) == 7


def test_offsets_of_an_aborted_transaction_never_count(
    bootstrap: str, member: Consumer, topic: str, group: str, transactional_id: str
) -> None:
    producer = open_producer(bootstrap, transactional_id)
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer.begin_transaction()
    send_offset(producer, member, topic, 7)
    producer.abort_transaction(WITHIN_S)
    assert committed_offset(bootstrap, group, topic, COMMITTED) == 3


def test_who_wants_a_stable_offset_is_told_to_wait_for_the_transaction_that_holds_it(
    bootstrap: str,
    admin: AdminClient,
    member: Consumer,
    topic: str,
    group: str,
    transactional_id: str,
) -> None:
    producer = open_producer(bootstrap, transactional_id)
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    producer.begin_transaction()
    send_offset(producer, member, topic, 7)
    with pytest.raises(KafkaException) as failed:  # it asks again until its time is up
        member.committed([TopicPartition(topic, 0)], timeout=QUIET_S)
    assert failed.value.args[0].code() == KafkaError._TIMED_OUT

    def stable_offset() -> tuple[int | None, int]:
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])], require_stable=True
        )
        [found] = asked[group].result(WITHIN_S).topic_partitions
        return (None if found.error is None else found.error.code()), found.offset

    assert stable_offset()[0] == KafkaError.UNSTABLE_OFFSET_COMMIT
    producer.commit_transaction(WITHIN_S)
    eventually(lambda: stable_offset() == (None, 7), what="the offset of the transaction")


@pytest.mark.full
def test_a_new_member_waits_for_the_offset_that_a_transaction_holds(
    bootstrap: str, member: Consumer, topic: str, group: str, transactional_id: str
) -> None:
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send_offset(producer, member, topic, 7)
    member.close()
    newcomer = open_consumer(bootstrap, group, COMMITTED)
    newcomer.subscribe([topic])
    deadline = time.monotonic() + 3 * QUIET_S
    while time.monotonic() < deadline:
        assert newcomer.poll(0.2) is None, "it began where nobody knows whether it should"
    producer.commit_transaction(WITHIN_S)
    assert values_of(take(newcomer, 3)) == [b"7", b"8", b"9"]
    newcomer.close()


def test_a_member_of_an_older_generation_cannot_commit_in_a_transaction(
    bootstrap: str, member: Consumer, topic: str, group: str, transactional_id: str
) -> None:
    stale = member.consumer_group_metadata()
    member.close()
    newcomer = open_consumer(bootstrap, group)
    newcomer.subscribe([topic])
    take(newcomer, 1)
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as failed:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], stale, WITHIN_S)
    assert failed.value.args[0].txn_requires_abort()
    producer.abort_transaction(WITHIN_S)
    newcomer.close()
    assert committed_offset(bootstrap, group, topic, COMMITTED) < 0


def test_a_member_of_the_newer_group_protocol_commits_in_a_transaction(
    bootstrap: str, admin: AdminClient, topic: str, group: str, transactional_id: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **COMMITTED,
        }
    )
    member.subscribe([topic])
    take(member, 10)
    producer = open_producer(bootstrap, transactional_id)
    producer.begin_transaction()
    send_offset(producer, member, topic, 7)
    producer.commit_transaction(WITHIN_S)
    [found] = member.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
    assert found.offset == 7

    stale = member.consumer_group_metadata()
    member.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException) as failed:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], stale, WITHIN_S)
    assert failed.value.args[0].txn_requires_abort()
    producer.abort_transaction(WITHIN_S)


def test_read_process_write_has_each_input_once_in_the_output(
    bootstrap: str, admin: AdminClient, topic: str, group: str, transactional_id: str
) -> None:
    """The second transaction of a worker aborts and is done over, its fourth it leaves open."""
    output = topic + "-output"
    create_topic(admin, topic, partitions=2)
    create_topic(admin, output, partitions=2)
    count = left = 60
    produce(bootstrap, topic, numbered(count))
    for _ in range(count):
        left -= process_some(bootstrap, group, topic, output, transactional_id, left)
        if left == 0:
            break
    got = sorted(int(value or 0) for value in kept(bootstrap, output, 2))
    assert got == [2 * number for number in range(count)]


def process_some(
    bootstrap: str, group: str, source: str, target: str, transactional_id: str, left: int
) -> int:
    """The work of one worker, which may end in an open transaction; how much it committed."""
    consumer = open_consumer(bootstrap, group, COMMITTED)
    consumer.subscribe([source])
    producer = open_producer(bootstrap, transactional_id)
    committed = 0
    for turn in range(4):
        messages = take(consumer, min(10, left - committed))
        if not messages:
            break
        producer.begin_transaction()
        for message in messages:
            doubled = 2 * int(message.value() or 0)
            producer.produce(target, b"%d" % doubled, partition=message.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN_S
        )
        if turn == 3:
            producer.flush(WITHIN_S)
            break
        if turn == 1:
            producer.abort_transaction(WITHIN_S)
            rewind(consumer, messages)
        else:
            producer.commit_transaction(WITHIN_S)
            committed += len(messages)
    consumer.close()
    return committed


def rewind(consumer: Consumer, messages: Sequence[Message]) -> None:
    first: dict[int, int] = {}
    for message in messages:
        first.setdefault(message.partition() or 0, message.offset() or 0)
    for partition, offset in first.items():
        consumer.seek(TopicPartition(messages[0].topic() or "", partition, offset))


# --- a broker of its own: restarts, lost answers, what is no contract --------------------------


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """One that may be restarted."""
    with Broker(tmp_path / "data") as broker:
        yield broker


def restart(broker: Broker, how: str) -> None:
    if how == "killed":
        broker.kill()
    else:
        broker.stop()
    broker.start()


HOW = pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.full)])


@pytest.fixture
def own_admin(own_broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": own_broker.bootstrap, **PATIENT})


@HOW
def test_an_open_transaction_goes_on_after_a_restart(
    own_broker: Broker, own_admin: AdminClient, how: str
) -> None:
    create_topic(own_admin, "orders")
    producer = open_producer(own_broker.bootstrap, "worker", **PATIENT)
    abort(producer, "orders", b"1")
    producer.begin_transaction()
    send(producer, "orders", b"2")
    restart(own_broker, how)
    assert visible(own_broker.bootstrap, "orders", COMMITTED) == []
    send(producer, "orders", b"3")
    producer.commit_transaction(WITHIN_S)
    assert kept(own_broker.bootstrap, "orders") == [b"2", b"3"]


@pytest.mark.full
@HOW
def test_a_transactional_id_is_taken_over_after_a_restart(
    own_broker: Broker, own_admin: AdminClient, how: str
) -> None:
    create_topic(own_admin, "orders")
    zombie = open_producer(own_broker.bootstrap, "worker", **PATIENT)
    commit(zombie, "orders", b"before")
    zombie.begin_transaction()
    send(zombie, "orders", b"left open")
    restart(own_broker, how)
    successor = open_producer(own_broker.bootstrap, "worker")
    commit(successor, "orders", b"after")
    with pytest.raises(KafkaException) as failed:
        zombie.commit_transaction(WITHIN_S)
    assert_fenced(failed)
    restart(own_broker, how)
    assert kept(own_broker.bootstrap, "orders") == [b"before", b"after"]


@HOW
def test_offsets_of_a_transaction_are_held_across_a_restart(
    own_broker: Broker, own_admin: AdminClient, how: str
) -> None:
    create_topic(own_admin, "orders")
    produce(own_broker.bootstrap, "orders", numbered(10))
    group = {"bootstrap": own_broker.bootstrap, "group": "readers", "topic": "orders"}
    producer = open_producer(own_broker.bootstrap, "worker", **PATIENT)
    consumer = open_consumer(own_broker.bootstrap, "readers", PATIENT)
    producer.begin_transaction()
    send_offset(producer, consumer, "orders", 4)
    producer.commit_transaction(WITHIN_S)
    producer.begin_transaction()
    send_offset(producer, consumer, "orders", 8)
    restart(own_broker, how)
    assert committed_offset(**group, config=UNCOMMITTED) == 4
    producer.commit_transaction(WITHIN_S)
    assert committed_offset(**group, config=COMMITTED) == 8
    restart(own_broker, how)
    assert committed_offset(**group, config=COMMITTED) == 8
    consumer.close()


@pytest.mark.full
def test_a_transaction_that_timed_out_while_the_broker_was_away_is_aborted(
    own_broker: Broker, own_admin: AdminClient
) -> None:
    create_topic(own_admin, "orders")
    timeouts = {"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000}
    producer = open_producer(own_broker.bootstrap, "worker", **PATIENT, **timeouts)
    producer.begin_transaction()
    send(producer, "orders", b"left open")
    own_broker.kill()
    time.sleep(1.0)
    own_broker.start()
    assert kept(own_broker.bootstrap, "orders") == []


def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_happens_twice(
    tmp_path: Path,
) -> None:
    with BrokerThread(tmp_path / "data") as broker, recorded_requests() as requests:
        create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), "orders")
        requests.lose_next(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN)
        requests.lose_next(ApiKey.PRODUCE, ApiKey.END_TXN)
        producer = open_producer(broker.bootstrap, "worker", **PATIENT)
        for number in range(4):
            commit(producer, "orders", b"%d" % number)
        assert not requests.to_lose
        values = [b"0", b"1", b"2", b"3"]
        assert kept(broker.bootstrap, "orders") == values
        assert visible(broker.bootstrap, "orders", UNCOMMITTED) == values


def test_records_that_are_in_flight_when_their_transaction_aborts_do_not_count(
    own_broker: Broker, own_admin: AdminClient
) -> None:
    """librdkafka gives them up, and takes a new epoch so that none can come late.

    No contract: it may also abort before Kafka has let it begin, and Kafka does not like that.
    """
    create_topic(own_admin, "orders")
    producer = open_producer(own_broker.bootstrap, "worker", **{"batch.num.messages": 10})
    turns = 10
    for turn in range(turns):
        producer.begin_transaction()
        for number in range(200 * turn):
            producer.produce("orders", b"aborted %d" % number, partition=0)
        producer.poll(0.001 * turn)
        producer.abort_transaction(WITHIN_S)
        commit(producer, "orders", b"%d" % turn)
    assert kept(own_broker.bootstrap, "orders") == [b"%d" % turn for turn in range(turns)]
