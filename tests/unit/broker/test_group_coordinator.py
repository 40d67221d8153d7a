import asyncio
from collections.abc import Sequence

import pytest

from millstream.broker.coordinated_group import CoordinatedGroup
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.group_state import GroupState
from millstream.broker.topics import OFFSETS_TOPIC
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.unit.broker.group_steps import (
    GROUP,
    JOIN_AT_ONCE,
    SESSION_MS,
    commit,
    commit_request,
    committed,
    heartbeat,
    join_alone,
    join_request,
    leave,
    sync_request,
)

DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S


def group_of(served: ServedNode, name: str = GROUP) -> CoordinatedGroup:
    group = served.node.groups.find(name)
    assert group is not None
    return group


def delete_group(served: ServedNode, name: str = GROUP) -> int:
    code: int = served.ask(DeleteGroupsRequest(groups_names=[name])).results[0].error_code
    return code


def stored_keys(served: ServedNode) -> int:
    return len(dict(served.node.groups._state))


# --- stored before it is told -----------------------------------------------------------------


def test_a_member_hears_of_its_assignment_only_once_that_is_synced(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    joined = served.ask(join_request(), JOIN_AT_ONCE)
    gate.shut()
    sync = served.ask_soon(sync_request(joined.member_id, joined.generation_id, all=b"all"))
    gate.until_a_sync_waits()
    served.turn()
    assert not sync.done()
    gate.open_gate()
    served.settle()
    assert sync.result().assignment == b"all"


def test_what_a_group_says_later_waits_for_what_it_said_before(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    joined = served.ask(join_request(), JOIN_AT_ONCE)
    gate.shut()
    sync = served.ask_soon(sync_request(joined.member_id, joined.generation_id, all=b"all"))
    gate.until_a_sync_waits()
    beat = served.ask_soon(join_request(joined.member_id), JOIN_AT_ONCE)
    served.turn()
    assert not beat.done()
    gate.open_gate()
    served.settle()
    assert sync.done()
    assert beat.result().error_code == ErrorCode.NONE


def test_a_group_that_cannot_be_stored_tells_its_members_to_try_again(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    joined = served.ask(join_request(), JOIN_AT_ONCE)
    disk.fill_at(disk.steps)
    answer = served.ask(sync_request(joined.member_id, joined.generation_id, all=b"all"))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_of(served).members.state is not GroupState.STABLE
    disk.heal()
    again = served.ask(join_request(joined.member_id), JOIN_AT_ONCE)
    assert again.generation_id == joined.generation_id + 1
    answer = served.ask(sync_request(joined.member_id, again.generation_id, all=b"all"))
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"all")


def test_a_failed_sync_tells_those_who_waited_for_it(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    joined = served.ask(join_request(), JOIN_AT_ONCE)
    disk.fail_syncs(lambda path: path.parent.name.startswith(OFFSETS_TOPIC))
    answer = served.ask(sync_request(joined.member_id, joined.generation_id, all=b"all"))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    served.crash()


def test_a_refused_state_does_not_fail_the_one_that_is_still_being_stored(
    serve: Serve, gate: GatedDisk
) -> None:
    """The disk fills up while the state before is on its way: answers stay in their order."""
    served = serve(disk=gate)
    joined = served.ask(join_request(instance_id="desk"), 5)
    gate.shut()
    request = sync_request(joined.member_id, joined.generation_id, all=b"all")
    request.group_instance_id = "desk"
    sync = served.ask_soon(request)
    gate.until_a_sync_waits()
    gate.fill_at(gate.steps)
    successor = served.ask_soon(join_request(instance_id="desk"), 9)
    served.turn()
    gate.open_gate()
    served.settle()
    assert sync.result().error_code == ErrorCode.NONE
    assert sync.result().assignment == b"all"
    assert successor.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    gate.heal()


# --- restart ----------------------------------------------------------------------------------


def test_a_restart_finds_the_group_stable_and_its_member_goes_on(serve: Serve) -> None:
    served = serve()
    served.create()
    me = join_alone(served)
    assert commit(served, 5, member=me) == ErrorCode.NONE
    served.crash()
    again = serve()
    assert group_of(again).members.state is GroupState.STABLE
    assert heartbeat(again, me) == ErrorCode.NONE
    assert commit(again, 6, member=me) == ErrorCode.NONE
    assert committed(again) == 6


@pytest.mark.parametrize("survival", Survival)
def test_committed_offsets_survive_a_power_cut(
    serve: Serve, disk: SimulatedDisk, survival: Survival
) -> None:
    served = serve()
    served.create()
    for offset in (3, 4):
        assert commit(served, offset) == ErrorCode.NONE
    served.crash()
    assert committed(serve(disk=disk.after_power_cut(survival, seed=1))) == 4


def test_after_a_restart_a_silent_member_is_expired_by_the_clock(serve: Serve) -> None:
    served = serve()
    me = join_alone(served)
    served.crash()
    again = serve()
    again.advance(SESSION_MS / 1000 + 1)
    assert group_of(again).members.state is GroupState.EMPTY
    assert heartbeat(again, me) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_comes_back_empty_with_its_generation(serve: Serve) -> None:
    served = serve()
    served.create()
    me = join_alone(served)
    commit(served, 5, member=me)
    leave(served, me)
    served.crash()
    members = group_of(serve()).members
    assert isinstance(members, ClassicGroup)
    assert (members.state, members.generation) == (GroupState.EMPTY, me.generation + 1)


# --- time -------------------------------------------------------------------------------------


def test_a_member_that_is_silent_for_its_session_is_out(served: ServedNode) -> None:
    me = join_alone(served)
    served.advance(SESSION_MS / 1000 - 1)
    assert heartbeat(served, me) == ErrorCode.NONE
    served.advance(SESSION_MS / 1000 - 1)
    assert heartbeat(served, me) == ErrorCode.NONE
    served.advance(SESSION_MS / 1000 + 1)
    assert group_of(served).members.state is GroupState.EMPTY


def test_a_group_has_at_most_one_timer(served: ServedNode) -> None:
    me = join_alone(served)
    for _ in range(10):
        heartbeat(served, me)
    live = [timer for timer in served.loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined] # asyncio's own list
    assert len(live) == 1
    leave(served, me)
    assert not group_of(served).timer.is_set


# --- expiry -----------------------------------------------------------------------------------


def expire(served: ServedNode) -> None:
    served.run(served.node.groups.expire())


def test_offsets_of_a_group_without_members_expire_and_the_group_goes_with_them(
    served: ServedNode,
) -> None:
    served.create()
    commit(served, 5)
    served.advance(WEEK_S - 1)
    expire(served)
    assert committed(served) == 5
    served.advance(1)
    expire(served)
    assert committed(served) == -1
    assert served.node.groups.find(GROUP) is None
    assert stored_keys(served) == 0


def test_what_a_member_reads_does_not_expire(served: ServedNode) -> None:
    served.create()
    me = join_alone(served)
    commit(served, 5, member=me)
    for _ in range(8):
        served.now_ms += DAY_S * 1000
    expire(served)
    assert committed(served) == 5


def test_a_client_may_set_its_own_retention(served: ServedNode) -> None:
    served.create()
    assert commit(served, 5, version=4, retention_ms=1_000) == ErrorCode.NONE
    served.advance(2)
    expire(served)
    assert committed(served) == -1


def test_without_a_retention_offsets_stay(serve: Serve) -> None:
    served = serve(offsets_retention_ms=-1)
    served.create()
    commit(served, 5)
    served.advance(100 * WEEK_S)
    expire(served)
    assert committed(served) == 5


@pytest.mark.parametrize("retention_ms", [-1, 1_000])
def test_a_group_of_which_nothing_is_left_is_removed(serve: Serve, retention_ms: int) -> None:
    served = serve(offsets_retention_ms=retention_ms)
    me = join_alone(served)
    leave(served, me)
    assert stored_keys(served) == 1
    expire(served)
    assert served.node.groups.find(GROUP) is None
    assert stored_keys(served) == 0


def test_a_group_whose_only_join_was_refused_does_not_stay(served: ServedNode) -> None:
    assert served.ask(join_request(session_timeout_ms=1)).error_code != ErrorCode.NONE
    before = served.node.groups.partition.log.end_offset
    expire(served)
    assert served.node.groups.find(GROUP) is None
    assert served.node.groups.partition.log.end_offset == before, "there was nothing to remove"


def test_a_group_whose_only_commit_was_refused_does_not_stay(served: ServedNode) -> None:
    assert commit(served, 5, topic="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    expire(served)
    assert served.node.groups.find(GROUP) is None


def test_an_id_that_was_given_out_keeps_its_group_until_its_time_is_over(
    served: ServedNode,
) -> None:
    assert served.ask(join_request()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    expire(served)
    assert served.node.groups.find(GROUP) is not None
    served.advance(SESSION_MS / 1000 + 1)
    expire(served)
    assert served.node.groups.find(GROUP) is None


def test_a_group_with_members_stays(served: ServedNode) -> None:
    me = join_alone(served)
    expire(served)
    assert heartbeat(served, me) == ErrorCode.NONE


def test_a_commit_under_way_keeps_its_group(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(commit_request(5))
    gate.until_a_sync_waits()
    expire(served)
    assert served.node.groups.find(GROUP) is not None
    gate.open_gate()
    served.settle()
    assert task.done()
    assert committed(served) == 5


# --- deleting ---------------------------------------------------------------------------------


def test_a_deleted_group_stays_deleted_with_its_offsets(serve: Serve) -> None:
    served = serve()
    served.create()
    commit(served, 5)
    assert delete_group(served) == ErrorCode.NONE
    assert delete_group(served) == ErrorCode.GROUP_ID_NOT_FOUND
    served.crash()
    again = serve()
    assert again.node.groups.find(GROUP) is None
    assert committed(again) == -1


def test_a_group_with_members_is_not_deleted(served: ServedNode) -> None:
    me = join_alone(served)
    assert delete_group(served) == ErrorCode.NON_EMPTY_GROUP
    assert heartbeat(served, me) == ErrorCode.NONE


def test_a_commit_under_way_does_not_bring_a_deleted_group_back(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(commit_request(5))
    gate.until_a_sync_waits()
    deletion = served.ask_soon(DeleteGroupsRequest(groups_names=[GROUP]))
    gate.open_gate()
    served.settle()
    assert task.done()
    assert deletion.result().results[0].error_code == ErrorCode.NONE
    served.crash()
    assert serve(disk=gate).node.groups.find(GROUP) is None


def test_a_group_that_cannot_be_deleted_is_as_it_was(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    commit(served, 5)
    disk.fill_at(disk.steps)
    assert delete_group(served) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert committed(served) == 5
    assert commit(served, 6) == ErrorCode.NONE


def test_a_deleted_group_may_start_anew_at_once(served: ServedNode) -> None:
    served.create()
    commit(served, 5)
    join = join_request()

    async def both() -> Sequence[object]:
        deletion = served.answer(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        return await asyncio.gather(deletion, served.answer(join, JOIN_AT_ONCE))

    _, joined = served.run(both())
    assert joined.error_code == ErrorCode.NONE  # type: ignore[attr-defined] # a JoinGroupResponse
    assert committed(served) == -1


def test_a_deleted_topic_takes_everyones_offsets_along(serve: Serve) -> None:
    served = serve()
    topic = served.create("orders", 2)
    served.create("other")
    for group in ("a", "b"):
        for partition in (0, 1):
            commit(served, 5, group=group, partition=partition)
        commit(served, 7, group=group, topic="other")
    served.run(served.node.topics.delete(topic))
    served.crash()
    again = serve()
    for group in ("a", "b"):
        assert [committed(again, group=group, partition=n) for n in (0, 1)] == [-1, -1]
        assert committed(again, group=group, topic="other") == 7


def test_a_commit_under_way_does_not_outlive_its_topic(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    topic = served.create()
    gate.shut()
    deletion = served.start(served.node.topics.delete(topic))
    gate.until_a_sync_waits()
    task = served.ask_soon(commit_request(5))
    gate.until_a_sync_waits()
    gate.open_gate()
    served.run(deletion)
    served.settle()
    assert task.done()
    assert committed(served) == -1
    served.crash()
    assert committed(serve(disk=gate)) == -1


def test_many_offsets_are_forgotten_with_one_sync(served: ServedNode) -> None:
    topic = served.create()
    for number in range(30):
        commit(served, 1, group=f"group-{number}")
    before = served.commit.counts.syncs
    served.run(served.node.groups.forget_topic(topic.name))
    assert served.commit.counts.syncs - before == 1


# --- commits ----------------------------------------------------------------------------------


def test_an_offset_is_fetched_only_once_it_is_synced(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(commit_request(5))
    gate.until_a_sync_waits()
    assert committed(served) == -1
    gate.open_gate()
    served.settle()
    assert task.done()
    assert committed(served) == 5


def test_on_a_full_disk_a_commit_is_refused_as_retriable_and_works_again_later(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    disk.fill_at(disk.steps)
    assert commit(served, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.heal()
    assert committed(served) == -1
    assert commit(served, 5) == ErrorCode.NONE
    assert not group_of(served).committing
