"""ShareFetch and ShareAcknowledge: the way of a record through a share group."""

import asyncio

import pytest

from millstream.broker.apis.api_78_share_fetch import OPENED_PER_TURN
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.handlers import Peer
from millstream.broker.share.acknowledgement import acknowledgement_of
from millstream.broker.share.acquisition import AcquireMode
from millstream.broker.share.share_sessions import CLOSING_EPOCH, SessionKey
from millstream.broker.wire import ErrorCode, decode_response, encode_request
from millstream.broker.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from millstream.broker.wire.messages.share_fetch import FetchPartition, ShareFetchResponse
from tests.support.compaction import compact, keyed
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    data_of,
    got,
    set_group_config,
)
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.support.socketless_client import SocketlessClient
from tests.support.transactions import Producer
from tests.unit.broker.share_group_steps import beat_request, join_share, leave_share

LOCK_S = 30.0
STATE_FILE = "__share_group_state-0"


@pytest.fixture
def queue(serve: Serve) -> ServedNode:
    """The topic `orders` with three records, a batch each; the group starts with the first."""
    served = serve()
    served.create("orders")
    for value in (b"a", b"b", b"c"):
        served.produce(value)
    set_group_config(served, share_auto_offset_reset="earliest")
    return served


def members(served: ServedNode, *names: str) -> list[ShareMember]:
    return [ShareMember(served, member_id=name) for name in names]


# --- hand out and settle -------------------------------------------------------------------------


def test_a_member_gets_records_and_accepts_them(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    assert ada.fetch() == [(0, b"a", 1), (1, b"b", 1), (2, b"c", 1)]
    assert ada.acknowledge((0, 2, ACCEPT)) == ErrorCode.NONE
    assert ada.fetch() == []


def test_what_one_member_holds_another_does_not_get(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    assert ada.fetch(max_records=2) == [(0, b"a", 1), (1, b"b", 1)]
    assert bob.fetch() == [(2, b"c", 1)]


def test_a_released_record_goes_to_another_member_and_counts(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    assert ada.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT)) == ErrorCode.NONE
    assert bob.fetch() == [(1, b"b", 2)]


def test_a_rejected_record_does_not_come_again(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    assert ada.acknowledge((0, 2, REJECT)) == ErrorCode.NONE
    assert ada.fetch() == []


def test_a_fetch_settles_what_it_acknowledges_and_gets_more(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch(max_records=1)
    data = ada.fetched((0, 0, RELEASE), max_records=1)
    assert data.acknowledge_error_code == ErrorCode.NONE
    assert got(data) == [(0, b"a", 2)]


def test_a_record_goes_to_another_member_when_its_lock_has_run_out(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch(max_records=1)
    bob.fetch()
    waiting = bob.fetch_soon((1, 2, ACCEPT))
    queue.advance(LOCK_S - 1)
    assert not waiting.done()
    queue.advance(2)
    assert got(data_of(queue.run(waiting))) == [(0, b"a", 2)]
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_record_that_another_member_has_accepted_cannot_be_accepted_late(
    queue: ServedNode,
) -> None:
    """Kafka answers with success, as it does for records that were deleted."""
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    queue.advance(LOCK_S + 1)
    bob.fetch()
    assert bob.acknowledge((0, 2, ACCEPT)) == ErrorCode.NONE
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_starts_over(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    queue.advance(LOCK_S - 5)
    assert ada.acknowledge((0, 0, RENEW), (1, 2, ACCEPT), is_renewal=True) == ErrorCode.NONE
    queue.advance(LOCK_S - 5)
    assert bob.fetch() == []
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.NONE


def test_a_renewal_must_be_announced(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    assert ada.acknowledge((0, 0, RENEW)) == ErrorCode.INVALID_REQUEST


def test_a_group_can_forbid_renewals(queue: ServedNode) -> None:
    set_group_config(queue, share_renew_acknowledge_enable="false")
    ada = ShareMember(queue)
    ada.fetch()
    assert ada.acknowledge((0, 0, RENEW), is_renewal=True) == ErrorCode.INVALID_REQUEST


def test_after_its_last_delivery_a_record_is_given_up(queue: ServedNode) -> None:
    set_group_config(queue, share_delivery_count_limit="2")
    ada = ShareMember(queue)
    assert ada.fetch(max_records=1) == [(0, b"a", 1)]
    assert ada.fetch((0, 0, RELEASE), max_records=1) == [(0, b"a", 2)]
    assert ada.fetch((0, 0, RELEASE), max_records=1) == [(1, b"b", 1)]


def test_what_a_member_does_not_hold_it_cannot_settle_and_nothing_else_is(
    queue: ServedNode,
) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch(max_records=2)
    bob.fetch()
    assert ada.acknowledge((0, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert ada.acknowledge((0, 1, ACCEPT)) == ErrorCode.NONE


def test_the_limit_of_records_is_exact_if_the_member_wants_it(queue: ServedNode) -> None:
    queue.produce(b"d", b"e", b"f")
    ada = ShareMember(queue)
    exact = {"max_records": 4, "share_acquire_mode": AcquireMode.RECORD_LIMIT}
    assert [at for at, _, _ in ada.fetch(**exact)] == [0, 1, 2, 3]
    assert [at for at, _, _ in ada.fetch()] == [4, 5]


def test_a_batch_that_is_larger_than_asked_for_is_handed_out_all_the_same(
    queue: ServedNode,
) -> None:
    ada = ShareMember(queue)
    assert ada.fetch(max_bytes=1) == [(0, b"a", 1)]


def test_a_large_batch_is_handed_out_even_if_another_partition_errs(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    request = ada.fetch_request(max_bytes=1)
    request.topics[0].partitions.insert(0, FetchPartition(partition_index=7))
    answer = queue.run(queue.answer(request, version=2, peer=ada.peer))
    assert isinstance(answer, ShareFetchResponse)
    by_number = {one.partition_index: one for one in answer.responses[0].partitions}
    assert by_number[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert got(by_number[0]) == [(0, b"a", 1)]


def test_only_batches_with_something_for_the_member_are_sent(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch(max_records=1)
    data = bob.fetched(max_records=1)
    assert got(data) == [(1, b"b", 1)]
    size_bytes = queue.node.topics.named("orders").partitions[0].log.size_bytes
    assert len(data.records or b"") == size_bytes // 3


def test_the_answer_says_how_long_records_are_held(queue: ServedNode) -> None:
    set_group_config(queue, share_record_lock_duration_ms="15000")
    answer = queue.run(ShareMember(queue).fetching())
    assert answer.acquisition_lock_timeout_ms == 15_000


# --- waiting -------------------------------------------------------------------------------------


def test_a_fetch_waits_for_a_record(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    waiting = ada.fetch_soon((0, 2, ACCEPT))
    assert not waiting.done()
    queue.produce(b"d")
    assert got(data_of(queue.run(waiting))) == [(3, b"d", 1)]


def test_a_fetch_waits_for_a_record_that_comes_back(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    waiting = bob.fetch_soon()
    ada.acknowledge((1, 1, RELEASE))
    assert got(data_of(queue.run(waiting))) == [(1, b"b", 2)]


def test_a_fetch_without_a_record_is_answered_when_the_time_is_up(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    waiting = ada.fetch_soon((0, 2, ACCEPT))
    queue.advance(59)
    assert not waiting.done()
    queue.advance(2)
    assert got(data_of(queue.run(waiting))) == []


def test_records_that_come_at_once_go_to_all_who_wait(queue: ServedNode) -> None:
    ShareMember(queue, member_id="first").fetch()
    exact = {"max_records": 1, "share_acquire_mode": AcquireMode.RECORD_LIMIT}
    waiting = [one.fetch_soon(**exact) for one in members(queue, "ada", "bob", "eve")]
    queue.produce(b"d", b"e", b"f")
    found = [got(data_of(queue.run(answer))) for answer in waiting]
    assert found == [[(3, b"d", 1)], [(4, b"e", 1)], [(5, b"f", 1)]]


def test_who_goes_away_as_a_record_comes_leaves_it_to_the_next(queue: ServedNode) -> None:
    ShareMember(queue, member_id="first").fetch()
    ada, bob = members(queue, "ada", "bob")
    first, second = ada.fetch_soon(), bob.fetch_soon()

    def go_away(_new_bytes: int) -> None:
        first.cancel()

    ada.topic.partitions[0].watchers.add(go_away)
    queue.produce(b"d")
    assert got(data_of(queue.run(second))) == [(3, b"d", 1)]


def test_a_member_that_is_gone_while_it_waits_gets_nothing(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    waiting = bob.fetch_soon()
    queue.node.share_partitions.close_session(SessionKey("workers", "bob"))
    ada.acknowledge((0, 2, RELEASE))
    assert got(data_of(queue.run(waiting))) == []
    assert len(ShareMember(queue, member_id="eve").fetch()) == 3


def test_a_topic_that_is_deleted_while_a_member_waits_is_an_error(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    waiting = bob.fetch_soon()
    queue.run(queue.node.topics.delete(bob.topic))
    assert data_of(queue.run(waiting)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert queue.node.share_partitions.positions("workers") == {}


# --- where a group begins ------------------------------------------------------------------------


def test_a_new_group_begins_with_what_comes_next(queue: ServedNode) -> None:
    ada = ShareMember(queue, "others")
    assert ada.fetch() == []
    queue.produce(b"d")
    assert ada.fetch() == [(3, b"d", 1)]


def test_where_a_group_begins_is_known_after_a_crash(queue: ServedNode, serve: Serve) -> None:
    """Kafka looks again, and what was written in between is skipped."""
    assert ShareMember(queue, "others").fetch() == []
    queue.produce(b"d")
    queue.crash()
    assert ShareMember(serve(), "others").fetch() == [(3, b"d", 1)]


def test_a_group_can_begin_with_records_of_some_age(queue: ServedNode) -> None:
    queue.advance(3600)
    queue.produce(b"new")
    set_group_config(queue, "others", share_auto_offset_reset="by_duration:P1D")
    ada = ShareMember(queue, "others")
    assert len(ada.fetch()) == 4


def test_a_group_can_be_told_to_begin_anew(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    ada.acknowledge((0, 2, ACCEPT))
    place = TopicIdPartition(ada.topic.id, 0)
    queue.run(queue.node.share_partitions.set_start("workers", {place: 1}))
    assert queue.node.share_partitions.positions("workers")[place].start_offset == 1
    assert ada.fetch() == [(1, b"b", 1), (2, b"c", 1)]


def test_a_group_can_be_told_to_begin_where_its_reset_says(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    ada.acknowledge((0, 2, ACCEPT))
    place = TopicIdPartition(ada.topic.id, 0)
    set_group_config(queue, share_auto_offset_reset="latest")
    queue.run(queue.node.share_partitions.set_start("workers", {place: -1}))
    assert ada.fetch() == []
    queue.produce(b"d")
    assert ada.fetch() == [(3, b"d", 1)]


def test_what_a_group_has_forgotten_it_begins_anew(queue: ServedNode, serve: Serve) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    ada.acknowledge((0, 2, ACCEPT))
    queue.run(queue.node.share_partitions.forget("workers", [ada.topic.id]))
    queue.crash()
    again = serve()
    assert again.node.share_partitions.positions("workers") == {}
    assert len(ShareMember(again).fetch()) == 3


# --- sessions ------------------------------------------------------------------------------------


def test_who_fetches_for_a_group_that_does_not_exist_leaves_nothing(queue: ServedNode) -> None:
    eve = ShareMember(queue)
    eve.group_id = "nobody"
    state_log = queue.node.share_partitions.partition.log
    before = state_log.end_offset
    assert eve.fetched().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queue.node.share_partitions.positions("nobody") == {}
    assert state_log.end_offset == before


def test_a_group_fetches_nothing_from_a_topic_that_nobody_in_it_subscribes_to(
    queue: ServedNode,
) -> None:
    ada = ShareMember(queue)
    ada.topic = queue.create("audit")
    assert ada.fetched().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queue.node.share_partitions.positions("workers") == {}


def test_a_group_that_is_deleted_while_somebody_waits_does_not_come_back(
    queue: ServedNode, serve: Serve
) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    waiting = ada.fetch_soon()
    queue.turn()
    queue.run(queue.node.groups.shares.delete("workers"))
    answer = queue.run(waiting)
    assert data_of(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queue.node.share_partitions.positions("workers") == {}
    queue.crash()
    assert serve().node.share_partitions.group_ids() == ()


def test_while_a_group_is_being_deleted_nobody_begins_it_anew(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create("orders")
    ada = ShareMember(served)
    ada.fetch()
    gate.shut()
    deleting = served.start(served.node.groups.shares.delete("workers"))
    gate.until_a_sync_waits()
    fetching = served.start(ada.fetching())
    served.turn()
    gate.open_gate()
    assert data_of(served.run(fetching)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    served.run(deleting)
    assert served.node.share_partitions.group_ids() == ()


def test_the_state_of_a_group_that_does_not_exist_is_gone_after_a_start(
    queue: ServedNode, serve: Serve
) -> None:
    partition = queue.node.topics.named("orders").partition(0)
    place = TopicIdPartition(queue.node.topics.named("orders").id, 0)
    shares = queue.node.share_partitions

    async def leave_a_state() -> None:
        await shares.until_ready(shares.open("nobody", place, partition))

    queue.run(leave_a_state())
    queue.crash()
    again = serve()
    again.turn()
    assert again.node.share_partitions.group_ids() == ()


def test_a_session_must_be_opened_first(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.epoch = 1
    answer = queue.run(ada.fetching())
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_goes_on_by_its_epoch(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    ada.epoch = 7
    assert queue.run(ada.fetching()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_session_goes_on_from_another_connection(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch(max_records=1)
    old = ada.peer
    ada.peer = Peer("192.0.2.8", 50_000, "127.0.0.1", 9092)
    assert ada.fetch() == [(1, b"b", 1), (2, b"c", 1)]
    queue.node.share_partitions.disconnect(id(old))
    assert ada.acknowledge((0, 2, ACCEPT)) == ErrorCode.NONE


def test_partitions_that_do_not_exist_are_told_once_and_not_kept(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    request = ada.fetch_request()
    request.topics[0].partitions = [FetchPartition(partition_index=at) for at in range(1_000)]
    first = queue.run(queue.answer(request, version=2, peer=ada.peer))
    assert isinstance(first, ShareFetchResponse)
    assert len(first.responses[0].partitions) == 1_000
    request.share_session_epoch, request.topics = 1, []
    second = queue.run(queue.answer(request, version=2, peer=ada.peer))
    assert isinstance(second, ShareFetchResponse)
    assert second.responses == []


def test_others_have_their_turn_while_a_request_names_many_partitions(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    request = ada.fetch_request()
    request.topics[0].partitions = [FetchPartition(partition_index=at) for at in range(1, 5_000)]
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        answer = asyncio.ensure_future(queue.answer(request, version=2, peer=ada.peer))
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1

    queue.run(count_turns())
    assert turns >= 5_000 // OPENED_PER_TURN


def test_the_last_request_of_a_session_gives_back_what_is_held(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    ada.epoch = -1
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.NONE
    assert bob.fetch() == [(1, b"b", 2), (2, b"c", 2)]


def test_a_fetch_can_be_the_last_request_of_a_session(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    ada.epoch = -1
    assert ada.fetch((0, 0, ACCEPT)) == []
    assert bob.fetch() == [(1, b"b", 2), (2, b"c", 2)]


def test_what_is_held_is_given_back_when_the_connection_is_gone(queue: ServedNode) -> None:
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    waiting = bob.fetch_soon()
    ada.disconnect()
    assert got(data_of(queue.run(waiting))) == [(0, b"a", 2), (1, b"b", 2), (2, b"c", 2)]


@pytest.mark.parametrize(("group_id", "member_id"), [("", "ada"), ("workers", ""), ("g", "x" * 37)])
def test_a_request_names_its_group_and_member(
    queue: ServedNode, group_id: str, member_id: str
) -> None:
    ada = ShareMember(queue, group_id, member_id)
    assert queue.run(ada.fetching()).error_code == ErrorCode.INVALID_REQUEST


def test_a_group_of_another_kind_has_no_shares(queue: ServedNode) -> None:
    queue.node.groups.find_or_create("readers")
    ada = ShareMember(queue, "readers")
    assert queue.run(ada.fetching()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_renewal_asks_for_no_records(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    refused = queue.run(ada.fetching((0, 0, RENEW), is_renew_ack=True))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    ada.epoch -= 1
    data = ada.fetched((0, 0, RENEW), is_renew_ack=True, max_records=0, max_bytes=0, batch_size=0)
    assert data.acknowledge_error_code == ErrorCode.NONE
    assert got(data) == []


def test_a_partition_that_does_not_exist_is_an_error_of_its_own(queue: ServedNode) -> None:
    ada = ShareMember(queue, partition=7)
    assert ada.fetched().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- what the log does meanwhile -----------------------------------------------------------------


def test_records_that_were_deleted_are_not_handed_out(queue: ServedNode) -> None:
    ada = ShareMember(queue)
    ada.fetch(max_records=1)
    queue.node.topics.delete_records(ada.topic.partitions[0], 2)
    assert ada.fetch() == [(2, b"c", 1)]
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.NONE


def test_what_compaction_has_removed_holds_nobody_up(serve: Serve, disk: SimulatedDisk) -> None:
    served = serve()
    log = served.create("orders", cleanup_policy="compact").partitions[0].log
    for value in (b"old", b"older", b"last"):
        log.append(keyed((b"key", value), (b"same", value)), now_ms=served.now_ms)
    log.roll(now_ms=served.now_ms)
    log.append(keyed((b"new", b"new")), now_ms=served.now_ms)
    log.sync(now_ms=served.now_ms)
    assert compact(disk, log) is not None
    set_group_config(served, share_auto_offset_reset="earliest")
    ada = ShareMember(served)
    assert ada.fetch() == [(4, b"last", 1), (5, b"last", 1)]
    assert ada.fetch() == [(6, b"new", 1)]
    assert ada.acknowledge((4, 6, ACCEPT)) == ErrorCode.NONE
    [state] = served.node.share_partitions.positions("workers").values()
    assert state.start_offset == 7


def test_a_group_that_reads_committed_does_not_see_what_was_aborted(queue: ServedNode) -> None:
    set_group_config(queue, share_isolation_level="read_committed")
    producer = Producer(queue)
    assert producer.init() == 0
    assert producer.send("orders", b"never") == 0
    assert producer.abort() == 0
    assert producer.send("orders", b"d") == 0
    assert producer.commit() == 0
    ada = ShareMember(queue)
    assert [value for _, value, _ in ada.fetch()] == [b"a", b"b", b"c", b"d"]


def test_a_group_that_reads_committed_waits_for_the_end_of_a_transaction(
    queue: ServedNode,
) -> None:
    set_group_config(queue, share_isolation_level="read_committed")
    producer = Producer(queue)
    assert producer.init() == 0
    ada = ShareMember(queue)
    ada.fetch()
    assert producer.send("orders", b"d") == 0
    waiting = ada.fetch_soon((0, 2, ACCEPT))
    assert not waiting.done()
    assert producer.commit() == 0
    assert [value for _, value, _ in got(data_of(queue.run(waiting)))] == [b"d"]


def test_other_groups_see_what_was_aborted_but_no_markers(queue: ServedNode) -> None:
    producer = Producer(queue)
    assert producer.init() == 0
    assert producer.send("orders", b"d") == 0
    assert producer.abort() == 0
    ada = ShareMember(queue)
    assert [at for at, _, _ in ada.fetch()] == [0, 1, 2, 3]
    assert ada.acknowledge((0, 3, ACCEPT)) == ErrorCode.NONE
    assert ada.fetch() == []
    place = TopicIdPartition(ada.topic.id, 0)
    assert queue.node.share_partitions.positions("workers")[place].start_offset == 5


# --- the disk ------------------------------------------------------------------------------------


def test_an_acknowledgement_is_answered_when_it_is_on_disk(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create("orders")
    served.produce(b"a", b"b")
    set_group_config(served, share_auto_offset_reset="earliest")
    ada = ShareMember(served)
    ada.fetch()
    gate.shut()
    said = ada.acknowledge_soon((0, 0, ACCEPT))
    gate.until_a_sync_waits()
    served.turn()
    assert not said.done()
    gate.open_gate()
    served.run(said)


def test_acknowledgements_that_come_during_a_sync_share_the_next(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create("orders")
    served.produce(*[b"x"] * 20)
    set_group_config(served, share_auto_offset_reset="earliest")
    exact = {"max_records": 1, "share_acquire_mode": AcquireMode.RECORD_LIMIT}
    many = members(served, *(f"m{number}" for number in range(20)))
    for member in many:
        member.fetch(**exact)
    log = served.node.share_partitions.partition.log
    before = log.end_offset
    gate.shut()
    said = [many[0].acknowledge_soon((0, 0, ACCEPT))]
    gate.until_a_sync_waits()
    said += [one.acknowledge_soon((at, at, ACCEPT)) for at, one in enumerate(many) if at]
    gate.open_gate()
    for answer in said:
        assert served.run(answer).responses[0].partitions[0].error_code == ErrorCode.NONE
    assert log.end_offset - before == 2


def test_what_was_accepted_is_done_after_a_restart_and_what_was_held_comes_again(
    queue: ServedNode, serve: Serve
) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    ada.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE))
    queue.crash()
    bob = ShareMember(serve(), member_id="bob")
    assert bob.fetch() == [(1, b"b", 2), (2, b"c", 1)]


def test_on_a_full_disk_an_acknowledgement_fails_and_is_stored_later(
    queue: ServedNode, serve: Serve, disk: SimulatedDisk
) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    disk.fill_at(disk.steps)
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert ada.fetched().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert ada.fetch() == []
    queue.crash()
    assert [at for at, _, _ in ShareMember(serve()).fetch()] == [1, 2]


def test_without_a_log_of_its_state_a_group_gets_nothing(
    queue: ServedNode, disk: SimulatedDisk
) -> None:
    ada = ShareMember(queue)
    ada.fetch(max_records=1)
    disk.fail_syncs(lambda path: path.parent.name == STATE_FILE)
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert ada.fetched().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert ada.fetched().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    queue.crash()


def test_what_was_settled_of_records_that_a_power_cut_took_does_not_count(
    serve: Serve, disk: SimulatedDisk
) -> None:
    """Relaxed: the records were not synced when they were accepted, their state was."""
    served = serve(is_relaxed=True)
    served.create("orders")
    set_group_config(served, share_auto_offset_reset="earliest")
    served.produce(b"a", b"b")
    ada = ShareMember(served)
    assert len(ada.fetch()) == 2
    assert ada.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE)) == ErrorCode.NONE
    served.crash()
    again = serve(disk=disk.after_power_cut(Survival.NOTHING))
    assert again.produce(b"other") == 0
    assert ShareMember(again).fetch() == [(0, b"other", 1)]


def test_the_start_in_many_partitions_takes_one_sync(serve: Serve, disk: SimulatedDisk) -> None:
    served = serve()
    topic = served.create("wide", partitions=20)
    ada = ShareMember(served, topic=topic)
    request = ada.fetch_request()
    request.topics[0].partitions = [FetchPartition(partition_index=at) for at in range(20)]
    disk.syncs.clear()
    answer = served.run(served.answer(request, version=2, peer=ada.peer))
    assert isinstance(answer, ShareFetchResponse)
    assert len(answer.responses[0].partitions) == 20
    assert [path.suffix for path in disk.syncs if path.parent.name == STATE_FILE].count(".log") == 1
    assert len(served.node.share_partitions.positions("workers")) == 20


def test_the_state_is_the_same_after_its_history_was_dropped(
    queue: ServedNode, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = ShareMember(queue)
    ada.fetch()
    assert ada.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT)) == ErrorCode.NONE
    ShareMember(queue, "others").fetch()
    before = [queue.node.share_partitions.positions(one) for one in ("workers", "others")]
    monkeypatch.setattr("millstream.broker.sharing.share_state_log.REWRITE_BYTES_MIN", 1)

    async def rewrite() -> None:
        queue.node.share_partitions.rewrite_if_worth_it()

    queue.run(rewrite())
    assert queue.node.share_partitions.partition.log.start_offset > 0
    queue.crash()
    again = serve()
    after = [again.node.share_partitions.positions(one) for one in ("workers", "others")]
    assert after == before
    assert ShareMember(again).fetch() == [(1, b"b", 2)]


def test_a_full_disk_only_delays_the_dropping_of_history(
    queue: ServedNode, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = queue.node.share_partitions
    ShareMember(queue).fetch()
    monkeypatch.setattr("millstream.broker.sharing.share_state_log.REWRITE_BYTES_MIN", 1)
    disk.fill_at(disk.steps)
    shares.rewrite_if_worth_it()
    steps = disk.steps
    shares.rewrite_if_worth_it()
    assert disk.steps == steps, "it is tried again when more has come"
    disk.heal()
    ShareMember(queue, member_id="bob").fetch()
    ada = ShareMember(queue, "others")
    ada.fetch()
    shares.rewrite_if_worth_it()
    assert shares.partition.log.start_offset > 0


def test_what_is_settled_while_history_cannot_be_dropped_is_on_disk_when_it_is_answered(
    queue: ServedNode, serve: Serve, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed rewrite took the acceptance for stored."""
    shares, topic = queue.node.share_partitions, queue.node.topics.named("orders")
    ShareMember(queue).fetch()
    monkeypatch.setattr("millstream.broker.sharing.share_state_log.REWRITE_BYTES_MIN", 1)

    async def settle_during_a_failed_rewrite() -> None:
        settled = shares.acknowledge(
            SessionKey("workers", "ada"),
            TopicIdPartition(topic.id, 0),
            topic.partition(0),
            [acknowledgement_of(0, 0, [ACCEPT])],
            is_renewal=False,
        )
        disk.fill_at(disk.steps)
        shares.rewrite_if_worth_it()
        disk.heal()
        await settled

    queue.run(settle_during_a_failed_rewrite())
    queue.crash()
    assert [at for at, _, _ in ShareMember(serve()).fetch()] == [1, 2]


# --- who leaves the group ------------------------------------------------------------------------


def test_what_a_member_acknowledges_after_it_has_left_its_group_counts(queue: ServedNode) -> None:
    """Its acknowledgements may be on their way, over another connection, when it leaves."""
    join_share(queue, "ada")
    join_share(queue, "bob")
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    leave_share(queue, "ada")
    assert bob.fetch() == [], "what ada holds comes again"
    ada.epoch = CLOSING_EPOCH
    assert ada.acknowledge((0, 1, ACCEPT)) == ErrorCode.NONE
    assert bob.fetch() == [(2, b"c", 2)], "the last epoch gives back what is still held"


def test_a_silent_member_keeps_its_records_until_their_locks_run_out(queue: ServedNode) -> None:
    """Its group goes on without it; its share session does not end with that (as in Kafka)."""
    join_share(queue, "ada")
    join_share(queue, "bob")
    ada, bob = members(queue, "ada", "bob")
    ada.fetch(max_records=1)
    for _ in range(2):
        queue.advance(LOCK_S - 5)
        queue.ask(beat_request("bob", 1))
        ada.acknowledge((0, 0, RENEW), is_renewal=True)
    assert queue.ask(beat_request("ada", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [record[0] for record in bob.fetch()] == [1, 2]
    assert ada.acknowledge((0, 0, ACCEPT)) == ErrorCode.NONE


def test_a_member_that_has_left_gives_back_its_records_with_its_connection(
    queue: ServedNode,
) -> None:
    join_share(queue, "ada")
    join_share(queue, "bob")
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    leave_share(queue, "ada")
    queue.node.share_partitions.disconnect(id(ada.peer))
    assert len(bob.fetch()) == 3


def test_a_leave_and_the_last_acknowledgement_in_one_write(queue: ServedNode) -> None:
    join_share(queue, "ada")
    join_share(queue, "bob")
    ada, bob = members(queue, "ada", "bob")
    ada.fetch()
    ada.epoch = CLOSING_EPOCH
    client = SocketlessClient(queue)
    client.send_bytes(
        b"".join(encode_request(beat_request("ada", -1), 1, 1, "ada"))
        + b"".join(encode_request(ada.acknowledge_request((0, 2, ACCEPT)), 2, 2, "ada"))
    )
    _, answer = decode_response(ShareAcknowledgeResponse, 2, client.until_answered(2)[1])
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    assert bob.fetch() == []
