"""Who reads what in a share group: even, shared, and without needless moves."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.simple_assignor import ShareAssignment, Subscriber, assign

T1, T2 = b"1" * 16, b"2" * 16
BOTH = frozenset({T1, T2})


def partitions(topic_id: bytes, count: int) -> list[TopicIdPartition]:
    return [TopicIdPartition(topic_id, number) for number in range(count)]


def subscribers(
    names: str, topic_ids: frozenset[bytes] = frozenset({T1}), held: ShareAssignment | None = None
) -> list[Subscriber]:
    return [
        Subscriber(member_id=name, topic_ids=topic_ids, held=(held or {}).get(name, frozenset()))
        for name in names
    ]


def sizes(assignment: ShareAssignment) -> list[int]:
    return sorted(len(share) for share in assignment.values())


def owners(assignment: ShareAssignment) -> Counter[TopicIdPartition]:
    return Counter(part for share in assignment.values() for part in share)


def test_more_partitions_than_members_are_spread_evenly_and_not_shared() -> None:
    assignment = assign(subscribers("abc"), partitions(T1, 7))
    assert sizes(assignment) == [2, 2, 3]
    assert set(owners(assignment).values()) == {1}


def test_more_members_than_partitions_share_them() -> None:
    assignment = assign(subscribers("abcde"), partitions(T1, 2))
    assert sizes(assignment) == [1, 1, 1, 1, 2]
    assert set(owners(assignment).values()) == {3}


def test_nobody_loses_a_partition_to_a_newcomer_without_need() -> None:
    parts = partitions(T1, 4)
    before = assign(subscribers("ab"), parts)
    after = assign(subscribers("abc", held=before), parts)
    assert sizes(after) == [1, 1, 2]
    assert all(after[name] <= before[name] for name in "ab")


def test_what_a_member_leaves_behind_goes_to_the_others() -> None:
    parts = partitions(T1, 4)
    before = assign(subscribers("abc"), parts)
    after = assign(subscribers("ab", held=before), parts)
    assert sizes(after) == [2, 2]
    assert all(before[name] <= after[name] for name in "ab")


def test_with_different_subscriptions_each_topic_is_spread_among_its_readers() -> None:
    members = [
        *subscribers("a", frozenset({T1})),
        *subscribers("b", frozenset({T2})),
        *subscribers("c", BOTH),
    ]
    assignment = assign(members, [*partitions(T1, 4), *partitions(T2, 2)])
    assert {part.topic_id for part in assignment["a"]} == {T1}
    assert Counter(part.topic_id for part in assignment["c"]) == {T1: 2, T2: 1}


def test_without_members_or_partitions_there_is_nothing_to_assign() -> None:
    assert assign([], partitions(T1, 3)) == {}
    assert assign(subscribers("ab"), []) == {"a": frozenset(), "b": frozenset()}


HELD = st.frozensets(st.sampled_from([*partitions(T1, 9), *partitions(T2, 5)]))
MEMBERS = st.dictionaries(st.sampled_from("abcdefgh"), HELD, min_size=1)


@given(held=MEMBERS, count=st.integers(1, 9), other_count=st.integers(0, 5))
def test_every_partition_has_a_reader_and_every_member_a_partition(
    held: dict[str, frozenset[TopicIdPartition]], count: int, other_count: int
) -> None:
    parts = [*partitions(T1, count), *partitions(T2, other_count)]
    assignment = assign(subscribers("".join(held), BOTH, held), parts)
    assert owners(assignment).keys() == {*parts}
    assert all(assignment.values())
    sharing = -(-len(held) // len(parts))
    assert max(owners(assignment).values()) <= sharing
    assert max(sizes(assignment)) <= -(-sharing * len(parts) // len(held))


@given(held=MEMBERS, count=st.integers(1, 9))
def test_an_assignment_that_nothing_has_changed_for_stays(
    held: dict[str, frozenset[TopicIdPartition]], count: int
) -> None:
    parts = partitions(T1, count)
    first = assign(subscribers("".join(held), held=held), parts)
    again = assign(subscribers("".join(held), held=first), parts)
    assert assign(subscribers("".join(held), held=again), parts) == again
