"""Who gets which task: level, and where its state is."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.streams.sticky_tasks import TaskAssignee, TasksToAssign, assign_tasks
from millstream.broker.streams.task import NO_TASKS, TaskId, Tasks

Assigned = dict[str, Tasks]


def numbered(subtopology: str, count: int) -> list[TaskId]:
    return [TaskId(subtopology, number) for number in range(count)]


def after(
    before: Assigned, members: dict[str, str], stateful: int, stateless: int, standbys: int = 0
) -> Assigned:
    assignees = [
        TaskAssignee(member_id=name, process_id=process, had=before.get(name, NO_TASKS))
        for name, process in members.items()
    ]
    tasks = TasksToAssign(
        stateful=numbered("s", stateful), stateless=numbered("n", stateless), standbys=standbys
    )
    return dict(assign_tasks(assignees, tasks))


def moved(before: Assigned, now: Assigned) -> int:
    owners = {task: name for name, tasks in before.items() for task in tasks.active}
    return sum(
        owners.get(task, name) != name for name, tasks in now.items() for task in tasks.active
    )


def test_nobody_to_give_to() -> None:
    assert after({}, {}, 3, 3) == {}


def test_a_new_member_takes_no_more_than_its_share() -> None:
    two = {"a": "p", "b": "q"}
    before = after({}, two, 6, 0)
    now = after(before, two | {"c": "r"}, 6, 0)
    assert moved(before, now) == 2
    assert len(now["c"].active) == 2


def test_new_threads_take_tasks_of_their_own_process() -> None:
    before = after({}, {"a1": "p", "b1": "q"}, 8, 0)
    now = after(before, {"a1": "p", "a2": "p", "b1": "q", "b2": "q"}, 8, 0)
    assert now["a1"].active | now["a2"].active == before["a1"].active
    assert now["b1"].active | now["b2"].active == before["b1"].active


def test_a_standby_takes_over() -> None:
    members = {"a": "p", "b": "q", "c": "r"}
    before = after({}, members, 3, 0, standbys=1)
    [gone] = before["a"].active
    [heir] = [name for name in ("b", "c") if gone in before[name].standby]
    now = after(before, {"b": "q", "c": "r"}, 3, 0, standbys=1)
    assert gone in now[heir].active


def test_tasks_with_state_are_level_by_themselves() -> None:
    now = after({}, {"a": "p", "b": "q"}, 4, 4)
    assert [Counter(t.subtopology for t in tasks.active) for tasks in now.values()] == [
        {"s": 2, "n": 2}
    ] * 2


def test_no_more_standbys_than_processes() -> None:
    now = after({}, {"a": "p", "b": "q"}, 2, 0, standbys=3)
    assert all(len(tasks.active) == len(tasks.standby) == 1 for tasks in now.values())


@given(
    rounds=st.lists(
        st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from("pqr"), min_size=1), max_size=5
    ),
    stateful=st.integers(0, 9),
    stateless=st.integers(0, 9),
    standbys=st.integers(0, 2),
)
def test_whoever_comes_and_goes_tasks_are_level_and_placed_once(
    rounds: list[dict[str, str]], stateful: int, stateless: int, standbys: int
) -> None:
    now: Assigned = {}
    for members in rounds:
        before, now = now, after(now, members, stateful, stateless, standbys)
        active = Counter(task for tasks in now.values() for task in tasks.active)
        assert active == Counter(numbered("s", stateful) + numbered("n", stateless))
        sizes = [len(tasks.active) for tasks in now.values()]
        assert max(sizes) - min(sizes) <= 1
        with_state = [sum(t.subtopology == "s" for t in tasks.active) for tasks in now.values()]
        assert max(with_state) - min(with_state) <= 1
        copies = min(standbys + 1, len({*members.values()}))
        for task in numbered("s", stateful):
            places = [
                members[name]
                for name, tasks in now.items()
                if task in tasks.active or task in tasks.standby
            ]
            assert len(places) == len({*places}) == copies
        again = after(now, members, stateful, stateless, standbys)
        assert moved(now, again) == 0
        assert not before or now.keys() == members.keys()
