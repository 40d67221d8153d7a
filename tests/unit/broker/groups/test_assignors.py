"""The assignors: uniform is even and sticky, range is cut by topic and sticky."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.groups.assignment import Assignee, Assignment, Assignor, elect_assignor
from millstream.broker.groups.range_assignor import assign_ranges
from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.groups.uniform_assignor import assign_uniformly
from tests.unit.broker.groups.consumer_steps import id_of, parts, topic

NAMES = ("orders", "prices", "users")


def assignees(
    *members: str, topics: tuple[str, ...] = ("orders",), held: Assignment | None = None
) -> list[Assignee]:
    return [
        Assignee(
            member_id=member,
            topic_ids=frozenset(id_of(name) for name in topics),
            held=(held or {}).get(member, frozenset()),
        )
        for member in members
    ]


@pytest.mark.parametrize("assign", [assign_uniformly, assign_ranges])
def test_nobody_and_nothing(assign: Assignor) -> None:
    assert assign([], TopicCatalog()) == {}
    assert assign(assignees("a"), TopicCatalog()) == {"a": frozenset()}


def test_uniform_hands_out_in_turn() -> None:
    catalog = TopicCatalog([topic("orders", 5)])
    assert assign_uniformly(assignees("a", "b"), catalog) == {
        "a": parts("orders", 0, 2, 4),
        "b": parts("orders", 1, 3),
    }


def test_uniform_moves_only_what_a_newcomer_needs() -> None:
    catalog = TopicCatalog([topic("orders", 6)])
    before = assign_uniformly(assignees("a", "b"), catalog)
    after = assign_uniformly(assignees("a", "b", "c", held=before), catalog)
    assert all(after[member] < before[member] for member in "ab")
    assert [len(after[m]) for m in "abc"] == [2, 2, 2]


def test_uniform_moves_only_what_a_leaver_leaves() -> None:
    catalog = TopicCatalog([topic("orders", 6)])
    before = assign_uniformly(assignees("a", "b", "c"), catalog)
    after = assign_uniformly(assignees("a", "b", held=before), catalog)
    assert all(after[member] > before[member] for member in "ab")


def test_uniform_gives_a_member_only_what_it_reads() -> None:
    catalog = TopicCatalog([topic("orders", 4), topic("prices", 4)])
    both, one = assignees("a", topics=("orders", "prices")), assignees("b", topics=("prices",))
    assert assign_uniformly([*both, *one], catalog) == {
        "a": parts("orders", 0, 1, 2, 3),
        "b": parts("prices", 0, 1, 2, 3),
    }


def test_range_cuts_each_topic_alike() -> None:
    catalog = TopicCatalog([topic("orders", 3), topic("prices", 3)])
    assert assign_ranges(assignees("a", "b", topics=("orders", "prices")), catalog) == {
        "a": parts("orders", 0, 1) | parts("prices", 0, 1),
        "b": parts("orders", 2) | parts("prices", 2),
    }


def test_range_cuts_a_topic_that_comes_later_like_the_first() -> None:
    catalog = TopicCatalog([topic("orders", 4)])
    held = {"a": parts("orders", 2, 3), "b": parts("orders", 0, 1)}
    catalog.put(topic("first", 4))
    after = assign_ranges(assignees("a", "b", topics=("first", "orders"), held=held), catalog)
    assert after == {
        "a": parts("orders", 2, 3) | parts("first", 2, 3),
        "b": parts("orders", 0, 1) | parts("first", 0, 1),
    }


def test_range_keeps_the_place_of_a_static_member() -> None:
    catalog = TopicCatalog([topic("orders", 2)])
    topic_ids = frozenset({id_of("orders")})
    members = [
        Assignee(member_id="z", instance_id="1", topic_ids=topic_ids),
        Assignee(member_id="a", instance_id="2", topic_ids=topic_ids),
    ]
    after = assign_ranges(members, catalog)
    assert after == {"z": parts("orders", 0), "a": parts("orders", 1)}


def test_the_assignor_that_most_ask_for_is_taken() -> None:
    assert elect_assignor([None, None], "uniform") == "uniform"
    assert elect_assignor([None, "range"], "uniform") == "range"
    assert elect_assignor(["range", "uniform", "uniform"], "uniform") == "uniform"


SIZES = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})
MEMBERS = st.sets(st.sampled_from("abcdefg"), min_size=1)
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefg"), st.sets(st.sampled_from(NAMES)), min_size=1
)


@given(sizes=SIZES, first=MEMBERS, second=MEMBERS)
def test_uniform_is_even_complete_and_sticky(
    sizes: dict[str, int], first: set[str], second: set[str]
) -> None:
    catalog = TopicCatalog(topic(name, size) for name, size in sizes.items())
    before = assign_uniformly(assignees(*first, topics=NAMES), catalog)
    after = assign_uniformly(assignees(*second, topics=NAMES, held=before), catalog)
    check_complete(after, sizes)
    loads = [len(own) for own in after.values()]
    assert max(loads) - min(loads) <= 1
    total = sum(sizes.values())
    for member in first & second:  # it gives up only what is above its share
        assert len(before[member] & after[member]) >= min(len(before[member]), total // len(second))


@given(sizes=SIZES, first=MEMBERS, second=MEMBERS)
def test_range_is_even_by_topic_complete_and_cuts_equal_topics_alike(
    sizes: dict[str, int], first: set[str], second: set[str]
) -> None:
    catalog = TopicCatalog(topic(name, size) for name, size in sizes.items())
    before = assign_ranges(assignees(*first, topics=NAMES), catalog)
    after = assign_ranges(assignees(*second, topics=NAMES, held=before), catalog)
    check_complete(after, sizes)
    for own in after.values():
        numbers = {name: {p.partition for p in own if p.topic_id == id_of(name)} for name in NAMES}
        for name in NAMES:
            share = sizes[name] // len(second)
            assert share <= len(numbers[name]) <= share + 1
            for other in NAMES:
                if sizes[name] == sizes[other]:
                    assert numbers[name] == numbers[other]


@pytest.mark.parametrize("assign", [assign_uniformly, assign_ranges])
@given(sizes=SIZES, first=SUBSCRIPTIONS, second=SUBSCRIPTIONS)
def test_whatever_members_read_each_partition_has_one_of_its_readers(
    assign: Assignor,
    sizes: dict[str, int],
    first: dict[str, set[str]],
    second: dict[str, set[str]],
) -> None:
    catalog = TopicCatalog(topic(name, size) for name, size in sizes.items())
    before: Assignment = {}
    for subscriptions in (first, second):
        members = [
            assignees(member, topics=tuple(names), held=before)[0]
            for member, names in subscriptions.items()
        ]
        after = assign(members, catalog)
        read = set[str]().union(*subscriptions.values())
        check_complete(after, {name: sizes[name] for name in read})
        for member, own in after.items():
            assert {part.topic_id for part in own} <= {id_of(n) for n in subscriptions[member]}
        before = after


def check_complete(assignment: Assignment, sizes: dict[str, int]) -> None:
    """Every partition once."""
    given_out = sorted(part for own in assignment.values() for part in own)
    assert given_out == sorted(p for name, n in sizes.items() for p in parts(name, *range(n)))
