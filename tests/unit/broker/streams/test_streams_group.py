"""A streams group (KIP-1071): who joins, who gets which task, and when."""

from dataclasses import replace
from typing import Any

import pytest

from millstream.broker.groups.group_messages import HeartbeatRequest, LeavingMember, SyncRequest
from millstream.broker.groups.group_state import GroupState
from millstream.broker.streams.streams_admission import (
    CHARACTERS_MAX,
    ENTRIES_MAX,
    INTERNAL_TOPICS_MAX,
    SUBTOPOLOGIES_MAX,
)
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.streams.streams_messages import StatusCode, UserEndpoint
from millstream.broker.streams.task import NO_TASKS, TaskId, Tasks
from millstream.broker.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.primitives import STRING_BYTES_MAX
from tests.unit.broker.groups.consumer_steps import topic
from tests.unit.broker.streams.steps import (
    COUNT,
    COUNTING,
    REBALANCE_MS,
    SESSION_MS,
    SPLIT,
    StreamsDriver,
    Thread,
    all_tasks,
    settle,
    task,
)

ENDPOINT = UserEndpoint(host="ada.example", port=8_080)


@pytest.fixture
def driver() -> StreamsDriver:
    return StreamsDriver()


# --- joining ----------------------------------------------------------------------------------


def test_the_first_member_gets_every_task(driver: StreamsDriver) -> None:
    reply = driver.join("ada")
    assert (reply.error, reply.epoch, reply.heartbeat_interval_ms) == (ErrorCode.NONE, 2, 5_000)
    assert reply.assigned == Tasks(active=frozenset(all_tasks(2)))
    assert driver.group.state is GroupState.STABLE


def test_an_answer_repeats_no_assignment_that_has_not_changed(driver: StreamsDriver) -> None:
    first = driver.join("ada")
    assert driver.beat("ada", first.epoch).assigned is None


def test_an_answer_that_was_lost_is_given_again(driver: StreamsDriver) -> None:
    first = driver.join("ada")
    assert driver.beat("ada", first.epoch, owned=NO_TASKS).assigned == first.assigned


def test_a_task_is_revoked_before_another_member_gets_it(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    bob = Thread(driver, "bob").join()
    assert bob.told == NO_TASKS
    kept = ada.beat().told.active
    assert len(kept) == 2
    assert bob.beat().told == NO_TASKS  # ada has heard of it, and has not said that she obeyed
    ada.beat()
    assert bob.beat().told.active == all_tasks(2) - kept
    assert ada.beat().epoch == bob.epoch == driver.group.book.epoch
    assert driver.group.state is GroupState.STABLE


def test_a_member_that_does_not_revoke_in_time_is_out(driver: StreamsDriver) -> None:
    Thread(driver, "ada").join()
    bob = Thread(driver, "bob").join()
    stubborn = driver.group.book.find("ada")
    assert stubborn is not None
    driver.beat("ada", stubborn.epoch, owned=Tasks(active=frozenset(all_tasks(2))))
    for _ in range(REBALANCE_MS // 5_000):
        driver.wait(5_000, bob)
        if driver.group.book.find("ada"):
            driver.beat("ada", stubborn.epoch, owned=Tasks(active=frozenset(all_tasks(2))))
    assert driver.group.book.find("ada") is None
    assert bob.beat().told.active == all_tasks(2)


def test_a_member_that_is_silent_is_out(driver: StreamsDriver) -> None:
    Thread(driver, "ada").join()
    driver.wait(SESSION_MS - 1)
    assert driver.group.book.find("ada") is not None
    driver.wait(1)
    assert driver.group.state is GroupState.EMPTY


def test_who_leaves_gives_its_tasks_to_the_others(driver: StreamsDriver) -> None:
    ada, bob = Thread(driver, "ada").join(), Thread(driver, "bob").join()
    settle(ada, bob)
    ada.leave()
    assert bob.beat().told.active == all_tasks(2)


def test_an_empty_group_waits_for_more_members_first() -> None:
    driver = StreamsDriver(initial_rebalance_delay_ms=3_000)
    ada, bob = Thread(driver, "ada").join(), Thread(driver, "bob").join()
    assert ada.statuses == bob.statuses == (StatusCode.ASSIGNMENT_DELAYED,)
    assert ada.epoch > 0  # else it would join again
    driver.wait(2_999, ada, bob)
    assert (ada.told, bob.told) == (NO_TASKS, NO_TASKS)
    driver.wait(1, ada, bob)
    assert (len(ada.told.active), len(bob.told.active)) == (2, 2)
    assert not ada.statuses


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"topology": None},
        {"rebalance_timeout_ms": -1},
        {"owned": Tasks(active=frozenset({task(0, 0)}))},
        {"rack_id": ""},
        {"unsupported": "streams groups do not have warm-up tasks yet"},
    ],
)
def test_a_join_that_does_not_say_enough_is_refused(
    driver: StreamsDriver, said: dict[str, object]
) -> None:
    whole = {"topology": COUNTING, "rebalance_timeout_ms": 1_000, "owned": NO_TASKS}
    reply = driver.beat("ada", 0, **whole | said)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert driver.group.is_vacant
    assert driver.stored == {}


@pytest.mark.parametrize(
    "subtopology",
    [
        replace(SPLIT, source_topics=()),
        replace(SPLIT, copartition_groups=(CopartitionGroup(source_topics=(1,)),)),
        replace(COUNT, id="0"),
        replace(SPLIT, id="2", changelog_topics=(InternalTopic(name="x", partitions=3),)),
        replace(COUNT, repartition_source_topics=(InternalTopic(name="nobody-writes-it"),)),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(
    driver: StreamsDriver, subtopology: object
) -> None:
    broken = Topology(epoch=0, subtopologies=(SPLIT, subtopology))  # type: ignore[arg-type]
    assert driver.join("ada", topology=broken).error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert driver.stored == {}


def test_a_topology_has_limits(driver: StreamsDriver) -> None:
    parts = tuple(replace(SPLIT, id=f"{n}") for n in range(SUBTOPOLOGIES_MAX + 1))
    changelogs = tuple(InternalTopic(name=f"c{n}") for n in range(INTERNAL_TOPICS_MAX + 1))

    def error_of(*subtopologies: Subtopology) -> ErrorCode:
        topology = Topology(epoch=0, subtopologies=subtopologies)
        return StreamsDriver().join("ada", topology=topology).error

    assert error_of(*parts[1:]) is ErrorCode.NONE
    assert error_of(*parts) is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert error_of(replace(SPLIT, changelog_topics=changelogs[1:])) is ErrorCode.NONE
    too_many = error_of(replace(SPLIT, changelog_topics=changelogs))
    assert too_many is ErrorCode.STREAMS_INVALID_TOPOLOGY
    rest = ENTRIES_MAX - len(SPLIT.source_topics)
    sinks = tuple(f"s{n}" for n in range(rest + 1))
    assert error_of(replace(SPLIT, repartition_sink_topics=sinks[1:])) is ErrorCode.NONE
    too_many = error_of(replace(SPLIT, repartition_sink_topics=sinks))
    assert too_many is ErrorCode.STREAMS_INVALID_TOPOLOGY
    said = len("0" + "words" + "by-word" + "counts")
    whole, rest = divmod(CHARACTERS_MAX - said, STRING_BYTES_MAX)
    values = [("", "1" * STRING_BYTES_MAX)] * whole
    long = [
        InternalTopic(name="counts", configs=(*values, ("", "1" * last)))
        for last in (rest, rest + 1)
    ]
    assert error_of(replace(SPLIT, changelog_topics=(long[0],))) is ErrorCode.NONE
    too_many = error_of(replace(SPLIT, changelog_topics=(long[1],)))
    assert too_many is ErrorCode.STREAMS_INVALID_TOPOLOGY
    joins = (CopartitionGroup(),) * ENTRIES_MAX
    assert error_of(replace(SPLIT, copartition_groups=joins)) is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_epochs_that_are_not_the_members_are_fenced(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    assert driver.beat("ada", ada.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("eve", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    Thread(driver, "bob").join()
    settle(ada)
    assert driver.beat("ada", 2).error is ErrorCode.FENCED_MEMBER_EPOCH  # owns who knows what
    assert driver.beat("ada", 2, owned=ada.owned).error is ErrorCode.NONE
    too_much = Tasks(active=frozenset(all_tasks(2)))
    assert driver.beat("ada", 2, owned=too_much).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_task_that_does_not_exist_cannot_be_owned(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    for unknown in (TaskId("0", 2), TaskId("0", -1), TaskId("7", 0)):
        owned = Tasks(active=frozenset({unknown}))
        assert driver.beat("ada", ada.epoch, owned=owned).error is ErrorCode.INVALID_REQUEST


def test_who_leaves_need_not_own_tasks_that_exist(driver: StreamsDriver) -> None:
    driver.join("ada")
    owned = Tasks(active=frozenset({TaskId("7", 0)}))
    assert driver.beat("ada", -1, owned=owned).error is ErrorCode.NONE
    assert driver.group.is_vacant


def test_members_of_the_classic_protocol_are_strangers(driver: StreamsDriver) -> None:
    driver.join("ada")
    group: StreamsGroup = driver.group
    more: dict[str, Any] = {"reply_to": "client", "now_ms": driver.now_ms}
    sync = SyncRequest(member_id="ada", generation=1)
    beat = HeartbeatRequest(member_id="ada", generation=1)
    assert driver.take(group.sync(sync, **more)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.take(group.heartbeat(beat, **more)).error is ErrorCode.UNKNOWN_MEMBER_ID
    [left] = driver.take(group.leave([LeavingMember("ada")], **more)).members
    assert left.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.book.find("ada") is not None


# --- topologies and topics --------------------------------------------------------------------


def test_another_topology_of_the_same_epoch_is_refused(driver: StreamsDriver) -> None:
    driver.join("ada")
    other = replace(COUNTING, subtopologies=(SPLIT,))
    reply = driver.join("bob", topology=other)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert "application.id" in (reply.message or "")
    assert driver.group.book.find("bob") is None


def test_the_same_topology_may_have_its_parts_in_another_order(driver: StreamsDriver) -> None:
    driver.join("ada")
    turned = replace(COUNTING, subtopologies=(COUNT, SPLIT))
    assert driver.join("bob", topology=turned).error is ErrorCode.NONE
    assert driver.group.book.topology == COUNTING


def test_a_member_with_an_older_topology_is_told_so(driver: StreamsDriver) -> None:
    driver.join("ada", topology=replace(COUNTING, epoch=1))
    stale = driver.join("bob", topology=COUNTING)
    assert [one.code for one in stale.statuses] == [StatusCode.STALE_TOPOLOGY]


def test_nobody_has_a_task_while_internal_topics_are_missing() -> None:
    driver = StreamsDriver(partitions=3, has_internal=False)
    reply = driver.join("ada")
    assert [one.code for one in reply.statuses] == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert {(one.name, one.partitions) for one in reply.to_create} == {
        ("by-word", 3),
        ("counts", 3),
    }
    assert dict(reply.to_create[1].configs) == {"cleanup.policy": "compact"}
    assert (reply.assigned, driver.group.state) == (NO_TASKS, GroupState.NOT_READY)
    driver.put_topic(topic("by-word", 3))
    driver.put_topic(topic("counts", 3))
    ready = driver.beat("ada", reply.epoch)
    assert ready.assigned == Tasks(active=frozenset(all_tasks(3)))
    assert (ready.statuses, ready.to_create) == ((), ())


def test_a_source_topic_that_is_missing_or_deleted_is_named(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    driver.remove_topic("words")
    assert ada.beat().statuses == (StatusCode.MISSING_SOURCE_TOPICS,)
    assert ada.told == NO_TASKS
    driver.put_topic(topic("words", 2))
    settle(ada)
    assert ada.told.active == all_tasks(2)


def test_an_internal_topic_with_other_partitions_is_named(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    driver.put_topic(topic("words", 4))
    assert ada.beat().statuses == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS,)


def test_a_topic_of_somebody_else_changes_nothing(driver: StreamsDriver) -> None:
    driver.join("ada")
    before = driver.group.book.epoch
    driver.put_topic(topic("other", 5))
    assert driver.group.book.epoch == before


# --- standbys, endpoints, the end -------------------------------------------------------------


def test_standbys_are_kept_in_other_processes_and_take_over() -> None:
    driver = StreamsDriver(standbys=1)
    ada, bob = Thread(driver, "ada").join(), Thread(driver, "bob").join()
    settle(ada, bob)
    assert ada.told.standby == {one for one in bob.told.active if one.subtopology == "1"}
    assert bob.told.standby == {one for one in ada.told.active if one.subtopology == "1"}
    had, standby = ada.told.active, ada.told.standby
    bob.leave()
    settle(ada)
    assert ada.told.active == all_tasks(2) >= had | standby
    assert ada.told.standby == frozenset()


def test_the_threads_of_a_process_keep_one_copy_of_a_state() -> None:
    driver = StreamsDriver(standbys=1)
    threads = [Thread(driver, name, "one").join() for name in ("ada", "bob")]
    settle(*threads)
    assert [thread.told.standby for thread in threads] == [frozenset()] * 2


def test_another_number_of_standbys_begins_a_new_assignment() -> None:
    driver = StreamsDriver()
    ada, bob = Thread(driver, "ada").join(), Thread(driver, "bob").join()
    settle(ada, bob)
    driver.group.limits = replace(driver.limits, standbys=1)
    settle(ada, bob)
    assert len(ada.told.standby | bob.told.standby) == 2


def test_members_hear_where_the_state_of_others_is(driver: StreamsDriver) -> None:
    told = driver.join("ada", endpoint=ENDPOINT)
    assert told.endpoints is not None
    [own] = told.endpoints
    assert (own.endpoint, own.active) == (ENDPOINT, {"words": [0, 1], "by-word": [0, 1]})
    again = driver.beat("ada", told.epoch, endpoint_epoch=told.endpoint_epoch)
    assert again.endpoints is None


def test_a_topic_that_several_parts_read_has_the_partitions_of_all() -> None:
    driver = StreamsDriver(3, has_internal=False)
    parts = tuple(Subtopology(id=one, source_topics=("words", "words")) for one in "012")
    topology = Topology(epoch=0, subtopologies=parts)
    told = driver.join("ada", topology=topology, endpoint=ENDPOINT)
    driver.join("bob", topology=topology)
    told = driver.beat("ada", told.epoch, owned=told.assigned)
    assert told.assigned is not None
    assert len({part for part, _ in told.assigned.active}) > 1
    assert told.endpoints is not None
    [own] = told.endpoints
    assert own.active == {"words": [0, 1, 2]}


@pytest.mark.timeout(60)
def test_a_large_application_is_told_where_its_state_is_without_a_pause() -> None:
    """One look through all tasks for each name took minutes, in the broker's loop."""
    names = tuple(f"topic-{number}" for number in range(ENTRIES_MAX // 200))
    parts = [Subtopology(id=f"{number}", source_topics=names) for number in range(200)]
    driver = StreamsDriver(has_internal=False)
    for name in names:
        driver.put_topic(topic(name, 500))
    told = driver.join(
        "ada", topology=Topology(epoch=0, subtopologies=tuple(parts)), endpoint=ENDPOINT
    )
    assert told.endpoints is not None
    [own] = told.endpoints
    assert own.active == {name: [*range(500)] for name in sorted(names)}


def test_a_member_stops_the_whole_application_until_all_are_gone(driver: StreamsDriver) -> None:
    ada, bob = Thread(driver, "ada").join(), Thread(driver, "bob").join()
    driver.beat("ada", ada.epoch, shuts_down=True)
    assert bob.beat().statuses == (StatusCode.SHUTDOWN_APPLICATION,)
    [status] = driver.beat("bob", bob.epoch, shuts_down=True).statuses
    assert "member ada " in status.detail  # who asked first
    ada.leave()
    assert bob.beat().statuses == (StatusCode.SHUTDOWN_APPLICATION,)
    bob.leave()
    assert ada.join().statuses == ()


# --- after a restart of the broker ------------------------------------------------------------


def test_a_group_is_found_again_as_it_was(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada", "p1").join()
    bob = Thread(driver, "bob", "p2").join()
    ada.beat()  # bob has nothing yet, and ada is about to give up half
    before = driver.group.book
    driver.restart()
    after = driver.group.book
    assert [*after] == [*before]
    assert (after.epoch, after.target_epoch) == (before.epoch, before.target_epoch)
    assert (after.topology, after.phase) == (COUNTING, GroupState.RECONCILING)
    settle(ada, bob)
    assert ada.told.active | bob.told.active == all_tasks(2)
    assert not ada.told.active & bob.told.active


def test_a_deleted_group_leaves_nothing_behind(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    assert driver.group.delete() is ErrorCode.NON_EMPTY_GROUP
    ada.leave()
    assert driver.group.delete() is ErrorCode.NONE
    assert driver.group.state is GroupState.DEAD
    assert len(driver.stored) == len([*driver.group.book.fact_keys()]) == 3


def test_a_change_of_topics_that_was_not_stored_is_noticed_after_a_restart() -> None:
    """The topic is in the log of topics, and the group's own record went with the power."""
    driver = StreamsDriver(has_internal=False)
    ada = Thread(driver, "ada").join()
    stored = dict(driver.stored)
    for name in ("by-word", "counts"):
        driver.put_topic(topic(name, 2))
    driver.stored = stored
    driver.restart()
    assert ada.beat().told.active == all_tasks(2)
    assert driver.group.state is GroupState.STABLE


def test_a_restart_changes_no_epoch_of_a_group_whose_topics_stayed(driver: StreamsDriver) -> None:
    ada = Thread(driver, "ada").join()
    driver.restart()
    assert ada.beat().epoch == driver.group.book.epoch == 2


def test_sessions_start_again_after_a_restart(driver: StreamsDriver) -> None:
    Thread(driver, "ada").join()
    driver.wait(SESSION_MS - 1)
    driver.restart()
    driver.wait(SESSION_MS - 1)
    assert driver.group.book.find("ada") is not None
    driver.wait(1)
    assert driver.group.is_vacant
