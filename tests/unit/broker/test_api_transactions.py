"""Transactions as clients see them, request by request, on a node without sockets."""

from typing import Any

import pytest

from millstream.base.disk import Disk
from millstream.broker.topics import TRANSACTIONS_TOPIC
from millstream.broker.transaction_coordinator import TransactionCounts
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from millstream.broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.broker.wire.messages.list_transactions import ListTransactionsRequest
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.log.transaction_index import TXN_INDEX_SUFFIX
from tests.support.batches import batch
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk
from tests.support.transactions import (
    READ_COMMITTED,
    Flow,
    Producer,
    fetch,
    read_all,
    read_committed,
)
from tests.unit.broker.group_steps import GROUP, join_alone

FLOWS = pytest.mark.parametrize("flow", list(Flow), ids=lambda flow: flow.name.lower())
NONE = ErrorCode.NONE


def started(served: ServedNode, name: str = "tx", flow: Flow | None = None) -> Producer:
    producer = Producer(served, name, flow or Flow.EPOCH_PER_TRANSACTION)
    assert producer.init() == NONE
    return producer


def latest(served: ServedNode, isolation: int) -> int:
    place = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name="orders", partitions=[place])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    return int(served.ask(request).topics[0].partitions[0].offset)


# --- what readers see -------------------------------------------------------------------------


@FLOWS
def test_a_transaction_is_seen_once_it_is_committed(served: ServedNode, flow: Flow) -> None:
    served.create()
    producer = started(served, flow=flow)
    assert producer.send("orders", b"a", b"b") == NONE
    assert read_committed(served, "orders") == []
    assert read_all(served, "orders") == [b"a", b"b"]
    assert producer.commit() == NONE
    assert read_committed(served, "orders") == [b"a", b"b"]


@FLOWS
def test_what_was_aborted_is_never_seen(served: ServedNode, flow: Flow) -> None:
    served.create()
    producer = started(served, flow=flow)
    for number, value in enumerate((b"a", b"b", b"c", b"d")):
        assert producer.send("orders", value) == NONE
        assert producer.end(is_commit=number % 2 == 0) == NONE
    assert read_committed(served, "orders") == [b"a", b"c"]
    assert read_all(served, "orders") == [b"a", b"b", b"c", b"d"]


def test_a_reader_waits_before_the_oldest_open_transaction(served: ServedNode) -> None:
    served.create()
    first, second = started(served, "first"), started(served, "second")
    served.produce(b"plain")
    first.send("orders", b"1")
    second.send("orders", b"2")
    assert second.commit() == NONE
    served.produce(b"behind")
    assert read_committed(served, "orders") == [b"plain"]
    assert latest(served, READ_COMMITTED) == 1
    assert latest(served, 0) == fetch(served, "orders").high_watermark == 5
    assert first.abort() == NONE
    assert read_committed(served, "orders") == [b"plain", b"2", b"behind"]
    assert latest(served, READ_COMMITTED) == 6


def test_a_transaction_has_not_ended_before_its_marker_is_synced(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create()
    producer = started(served)
    assert producer.send("orders", b"a") == NONE
    log = served.node.topics.named("orders").partitions[0].log
    who = producer.who
    gate.shut()
    ending = served.start(served.node.transactions.end("tx", who, is_commit=True))
    served.turn()
    assert not ending.done()
    assert log.last_stable_offset == 0
    gate.open_gate()
    served.run(ending)
    assert log.last_stable_offset == log.high_watermark == 2


def test_a_waiting_reader_is_woken_by_the_marker(served: ServedNode) -> None:
    served.create()
    producer = started(served)
    producer.send("orders", b"x" * 1_000)
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        topics=[FetchTopic(topic="orders", partitions=[place])],
        isolation_level=READ_COMMITTED,
        min_bytes=500,
        max_wait_ms=60_000,
    )
    waiting = served.ask_soon(request, 12)
    served.turn()
    assert not waiting.done()
    assert producer.commit() == NONE
    served.turn()
    assert waiting.done()


@FLOWS
def test_offsets_count_once_the_transaction_is_committed(served: ServedNode, flow: Flow) -> None:
    served.create()
    producer = started(served, flow=flow)
    for offset, is_commit in ((1, True), (2, False), (3, True)):
        assert producer.send("orders", b"a") == NONE
        assert producer.send_offset("orders", offset) == NONE
        before = committed(served)
        assert before == (None if offset == 1 else 1)
        assert producer.end(is_commit=is_commit) == NONE
    assert committed(served) == 3


def committed(served: ServedNode) -> int | None:
    group = served.node.groups.find("readers")
    found = [offset.offset for _, offset in group.offsets] if group else []
    return found[0] if found else None


def test_a_member_that_left_meanwhile_commits_nothing(serve: Serve, gate: GatedDisk) -> None:
    """Letting the offsets take part waits for a sync; who may commit is asked behind it."""
    served = serve(disk=gate)
    served.create()
    me = join_alone(served)
    producer = started(served)
    place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=GROUP,
        producer_id=producer.who.producer_id,
        producer_epoch=producer.who.epoch,
        generation_id=me.generation,
        member_id=me.member_id,
        topics=[TxnOffsetCommitRequestTopic(name="orders", partitions=[place])],
    )
    gate.shut()
    late = served.ask_soon(request, 5)
    served.turn()
    leaving = LeaveGroupRequest(
        group_id=GROUP, members=[MemberIdentity(member_id=me.member_id)], member_id=me.member_id
    )
    left = served.ask_soon(leaving)
    served.turn()
    gate.open_gate()
    served.run(left)
    answer = served.run(late).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit() == NONE
    assert committed(served) is None


# --- who may do what --------------------------------------------------------------------------


@FLOWS
def test_a_zombie_is_fenced_and_what_it_left_open_is_aborted(
    served: ServedNode, flow: Flow
) -> None:
    served.create()
    zombie = started(served, flow=flow)
    assert zombie.send("orders", b"lost") == NONE
    successor = started(served, flow=flow)
    assert successor.who.epoch > zombie.who.epoch
    assert read_committed(served, "orders") == []
    log = served.node.topics.named("orders").partitions[0].log
    assert log.last_stable_offset == log.high_watermark
    assert zombie.write("orders", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.commit() == ErrorCode.PRODUCER_FENCED
    assert zombie.write_offset("orders", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert successor.send("orders", b"kept") == NONE
    assert successor.commit() == NONE
    assert read_committed(served, "orders") == [b"kept"]


def test_older_versions_know_one_word_for_every_old_epoch(served: ServedNode) -> None:
    served.create()
    zombie = started(served)
    started(served)
    request = InitProducerIdRequest(
        transactional_id="tx",
        transaction_timeout_ms=1_000,
        producer_id=zombie.who.producer_id,
        producer_epoch=zombie.who.epoch,
    )
    assert served.ask(request, 3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert served.ask(request, 4).error_code == ErrorCode.PRODUCER_FENCED


def test_a_write_must_belong_to_the_transaction(served: ServedNode) -> None:
    served.create()
    producer = started(served, flow=Flow.PARTITIONS_FIRST)
    assert producer.write("orders", b"a") == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.write_offset("orders", 1) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add("orders") == NONE
    assert producer.write("orders", b"a") == NONE
    assert producer.commit() == NONE
    assert producer.write("orders", b"b") == ErrorCode.TRANSACTION_ABORTABLE


def test_a_batch_of_a_transaction_needs_a_request_that_names_one(served: ServedNode) -> None:
    served.create()
    producer = started(served)
    producer.send("orders", b"a")
    plain = produce_request(b"b")
    plain.topic_data[0].partition_data[0].records = batch(
        b"b", producer_id=producer.who.producer_id, producer_epoch=0, sequence=1
    )
    answer = served.ask(plain)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


def test_partitions_are_added_all_or_none(served: ServedNode) -> None:
    served.create()
    producer = started(served)
    assert producer.add("nowhere", "orders") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    transaction = served.node.transactions.find("tx")
    assert transaction is not None
    assert not transaction.places


def test_nobody_takes_part_with_the_brokers_own_topics(served: ServedNode) -> None:
    producer = started(served)
    assert producer.add(TRANSACTIONS_TOPIC) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert producer.write(TRANSACTIONS_TOPIC, b"a") == ErrorCode.INVALID_TOPIC_EXCEPTION
    transaction = served.node.transactions.find("tx")
    assert transaction is not None
    assert not transaction.places


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, NONE),
        (900_000, NONE),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_timeout_has_its_limits(served: ServedNode, timeout_ms: int, code: ErrorCode) -> None:
    assert Producer(served, timeout_ms=timeout_ms).init() == code


def test_an_empty_id_is_refused(served: ServedNode) -> None:
    assert Producer(served, "").init() == ErrorCode.INVALID_REQUEST


@FLOWS
def test_a_transaction_that_is_open_too_long_is_aborted(served: ServedNode, flow: Flow) -> None:
    served.create()
    producer = Producer(served, flow=flow, timeout_ms=5_000)
    producer.init()
    producer.send("orders", b"slow")
    served.advance(4.9)
    served.run(served.node.transactions.abort_timed_out())
    assert latest(served, READ_COMMITTED) == 0
    served.advance(0.1)
    served.run(served.node.transactions.abort_timed_out())
    assert latest(served, READ_COMMITTED) == 2
    assert served.node.transactions.counts == TransactionCounts(aborted=1, timed_out=1)
    assert producer.write("orders", b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.commit() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    assert read_committed(served, "orders") == []


def test_an_id_that_nobody_uses_is_forgotten(serve: Serve) -> None:
    served = serve()
    started(served)
    served.advance(10)
    served.run(served.node.transactions.forget_unused(unused_ms=10_001))
    assert served.node.transactions.find("tx") is not None
    served.run(served.node.transactions.forget_unused(unused_ms=10_000))
    assert served.node.transactions.find("tx") is None
    assert started(served).who.epoch == 0, "a new one, with another producer id"
    served.advance(10)
    served.run(served.node.transactions.forget_unused(unused_ms=10_000))
    served.close()
    assert serve().node.transactions.find("tx") is None


# --- what happens around them -----------------------------------------------------------------


def test_a_topic_may_go_while_a_transaction_writes_to_it(served: ServedNode) -> None:
    served.create()
    served.create("audit")
    producer = started(served)
    producer.send("orders", b"a")
    producer.send("audit", b"a")
    producer.send_offset("orders", 1)
    served.run(served.node.topics.delete(served.node.topics.named("orders")))
    served.create("orders")
    assert producer.commit() == NONE
    assert read_committed(served, "audit") == [b"a"]
    assert committed(served) is None, "how far a deleted topic was read is nothing to the next"


def test_a_deleted_group_does_not_come_back_with_a_commit(serve: Serve) -> None:
    served = serve()
    served.create()
    producer = started(served)
    producer.send("orders", b"a")
    producer.send_offset("orders", 1)
    answer = served.ask(DeleteGroupsRequest(groups_names=["readers"]))
    assert answer.results[0].error_code == NONE
    assert producer.commit() == NONE
    assert committed(served) is None
    served.close()
    assert committed(serve()) is None


def test_what_is_open_is_open_after_a_restart(serve: Serve) -> None:
    served = serve()
    served.create()
    producer = started(served)
    producer.send("orders", b"a")
    producer.send_offset("orders", 7)
    served.close()
    producer.served = served = serve()
    assert latest(served, READ_COMMITTED) == 0
    assert committed(served) is None
    assert producer.send("orders", b"b") == NONE
    assert producer.commit() == NONE
    assert read_committed(served, "orders") == [b"a", b"b"]
    assert committed(served) == 7


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "crash"])
def test_what_was_aborted_stays_so_over_segments_and_restarts(
    serve: Serve, disk: SimulatedDisk, is_clean: bool
) -> None:
    served = serve()
    served.create(segment_bytes="400")
    expected = write_alternating(served, 12)
    assert served.node.topics.named("orders").partitions[0].log.segment_count > 3
    assert read_committed(served, "orders") == expected
    served.close() if is_clean else served.crash()
    again = serve()
    assert read_committed(again, "orders") == expected


def write_alternating(served: ServedNode, count: int) -> list[bytes | None]:
    """Some transactions, every other one aborted; what is to be seen of them."""
    producer = started(served)
    for number in range(count):
        assert producer.send("orders", b"%d" % number, b"x" * 50) == NONE
        assert producer.end(is_commit=number % 2 == 0) == NONE
    return [value for number in range(0, count, 2) for value in (b"%d" % number, b"x" * 50)]


@pytest.mark.parametrize("damage", ["flipped", "cut", "both"])
def test_a_damaged_index_of_aborted_transactions_is_not_believed(
    serve: Serve, disk: SimulatedDisk, damage: str
) -> None:
    served = serve()
    served.create(segment_bytes="400")
    expected = write_alternating(served, 12)
    directory = served.node.topics.named("orders").partitions[0].log.directory
    served.close()
    names = [name for name in disk.names(directory) if name.endswith(TXN_INDEX_SUFFIX)]
    assert names
    for name in names:
        break_file(disk, directory / name, damage)
        if damage == "both":
            break_file(disk, (directory / name).with_name(f"{name}.checked"), "cut")
    assert read_committed(serve(), "orders") == expected


def break_file(disk: Disk, path: Any, damage: str) -> None:
    file = disk.open(path)
    content = bytearray(file.read(0, file.size))
    if damage == "flipped":
        content[20] ^= 1
    else:
        del content[-5:]
    file.overwrite(bytes(content))
    file.close()


def test_a_full_disk_delays_an_end_and_loses_nothing(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    producer = started(served)
    producer.send("orders", b"a")
    disk.fill_at(disk.steps)
    assert producer.commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert producer.commit() == NONE
    assert read_committed(served, "orders") == [b"a"]


def test_markers_that_could_not_be_written_are_written_later(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    producer = started(served)
    producer.send("orders", b"a")
    fill_behind_the_decision(disk)
    assert producer.commit() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert read_committed(served, "orders") == []
    assert producer.write("orders", b"b") != NONE
    disk.heal()
    served.run(served.node.transactions.resume())
    assert read_committed(served, "orders") == [b"a"]
    assert producer.commit() == NONE


def test_a_marker_is_written_once_however_often_another_one_fails(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    served.create("audit")
    producer = started(served)
    producer.send("orders", b"a")
    producer.send("audit", b"a")
    disk.fail_syncs(lambda path: path.parent.name == "audit-0")
    log = served.node.topics.named("orders").partitions[0].log
    for _ in range(5):
        assert producer.commit() == ErrorCode.CONCURRENT_TRANSACTIONS
        served.run(served.node.transactions.resume())
    assert log.end_offset == 2, "a record and its marker"
    served.crash()  # audit-0 is read-only for good


def fill_behind_the_decision(disk: SimulatedDisk) -> None:
    """The next step stores the decision; the ones behind its sync find no room."""
    disk.fill_at(disk.steps + 2)


# --- what operators see -----------------------------------------------------------------------


def test_transactions_can_be_described(served: ServedNode) -> None:
    served.create("orders", 2)
    producer = started(served)
    producer.send("orders", b"a", partition=1)
    (one,) = served.ask(DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
    assert (one.transaction_state, one.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (one.producer_id, one.producer_epoch) == producer.who
    assert one.transaction_start_time == served.now_ms
    assert [(topic.topic, topic.partitions) for topic in one.topics] == [("orders", [1])]


def test_transactions_can_be_listed_by_state_producer_age_and_name(served: ServedNode) -> None:
    served.create()
    first, second = started(served, "first"), started(served, "second")
    first.send("orders", b"a")
    served.advance(10)
    second.send("orders", b"a")
    second.commit()

    def names(**filters: Any) -> set[str]:
        found = served.ask(ListTransactionsRequest(**filters)).transaction_states
        return {one.transactional_id for one in found}

    assert names() == {"first", "second"}
    assert names(state_filters=["Ongoing"]) == {"first"}
    assert names(state_filters=["CompleteCommit"]) == {"second"}
    assert names(producer_id_filters=[second.who.producer_id]) == {"second"}
    assert names(duration_filter=9_999) == {"first"}
    assert names(duration_filter=10_000) == set()
    assert names(transactional_id_pattern="f.*") == {"first"}
    answer = served.ask(ListTransactionsRequest(state_filters=["Sleeping"]))
    assert answer.unknown_state_filters == ["Sleeping"]


def test_the_producers_of_a_partition_are_listed_with_their_open_transactions(
    served: ServedNode,
) -> None:
    served.create()
    served.produce(b"plain")
    producer = started(served)
    producer.send("orders", b"a", b"b")
    wanted = TopicRequest(name="orders", partition_indexes=[0])

    def described() -> Any:
        answer = served.ask(DescribeProducersRequest(topics=[wanted]))
        (one,) = answer.topics[0].partitions[0].active_producers
        return one

    one = described()
    assert Identity(one.producer_id, one.producer_epoch) == producer.who
    assert (one.last_sequence, one.current_txn_start_offset) == (1, 1)
    producer.commit()
    one = described()
    assert (one.last_sequence, one.current_txn_start_offset) == (-1, -1)
    assert one.producer_epoch == producer.who.epoch
