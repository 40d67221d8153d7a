"""Kafka's `simple` assignor: who reads which partitions of a share group.

A partition may go to several members, so more members than partitions is fine. Each member gets
as many as the others, give or take one, each partition is shared as often as the others, and
whoever has a partition keeps it where that allows. If not all subscribe to the same topics, each
topic is spread among its own subscribers.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.broker.groups.topic_catalog import TopicIdPartition

ShareAssignment = Mapping[str, frozenset[TopicIdPartition]]  # by member id


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as the assignor sees it: what it may read, and what it was to read before."""

    member_id: str
    topic_ids: frozenset[bytes]
    held: frozenset[TopicIdPartition] = frozenset()


def assign(
    subscribers: Iterable[Subscriber], partitions: Iterable[TopicIdPartition]
) -> ShareAssignment:
    members = sorted(subscribers, key=lambda member: member.member_id)
    assigned: dict[str, frozenset[TopicIdPartition]] = {
        member.member_id: frozenset() for member in members
    }
    for readers, parts in _pools(members, sorted(partitions)):
        for member_id, share in _Pool(readers, parts).spread().items():
            assigned[member_id] |= share
    return assigned


def _pools(
    members: Sequence[Subscriber], partitions: Sequence[TopicIdPartition]
) -> Iterable[tuple[list[Subscriber], list[TopicIdPartition]]]:
    """Who shares what: everybody everything, or else the readers of each topic that topic."""
    is_same = len({member.topic_ids for member in members}) == 1
    topic_ids = sorted(frozenset().union(*(member.topic_ids for member in members)))
    groups = [frozenset(topic_ids)] if is_same else [frozenset([one]) for one in topic_ids]
    for wanted in groups:
        readers = [member for member in members if wanted <= member.topic_ids]
        yield readers, [part for part in partitions if part.topic_id in wanted]


class _Pool:
    """Partitions that all of these members read."""

    def __init__(self, members: Sequence[Subscriber], partitions: Sequence[TopicIdPartition]):
        # Rounded up: how many members each partition has, so that every member has one.
        self._sharing = -(-len(members) // len(partitions)) if partitions else 0
        total = self._sharing * len(partitions)
        self._owners: dict[TopicIdPartition, set[str]] = {part: set() for part in partitions}
        self._shares: dict[str, set[TopicIdPartition]] = {}
        self._wanted: dict[str, int] = {}
        for number, member in enumerate(members):
            self._shares[member.member_id] = set()
            # The total in equal parts: rounded up, less what those before it have got.
            before, until = (-(-total * n // len(members)) for n in (number, number + 1))
            self._wanted[member.member_id] = until - before
        for member in members:
            for part in member.held & self._owners.keys():
                self._give(member.member_id, part)

    def spread(self) -> dict[str, frozenset[TopicIdPartition]]:
        self._take_from_overshared()
        self._take_from_overfilled()
        self._give_the_rest()
        return {member_id: frozenset(share) for member_id, share in self._shares.items()}

    def _take_from_overshared(self) -> None:
        """From those that have too many first."""
        for part, owners in self._owners.items():
            by_excess = sorted(owners, key=lambda one: (-self._excess(one), one))
            for member_id in by_excess[: max(0, len(owners) - self._sharing)]:
                self._take(member_id, part)

    def _take_from_overfilled(self) -> None:
        for member_id, share in self._shares.items():
            for part in sorted(share)[: max(0, self._excess(member_id))]:
                self._take(member_id, part)

    def _give_the_rest(self) -> None:
        """In turns. It may be that all who could take one more have this partition: so be it."""
        unfilled = deque(one for one in self._shares if self._excess(one) < 0)
        for part, owners in self._owners.items():
            for _ in range(len(unfilled)):
                if len(owners) >= self._sharing:
                    break
                member_id = unfilled.popleft()
                self._give(member_id, part)
                if self._excess(member_id) < 0:
                    unfilled.append(member_id)

    def _excess(self, member_id: str) -> int:
        return len(self._shares[member_id]) - self._wanted[member_id]

    def _give(self, member_id: str, part: TopicIdPartition) -> None:
        self._shares[member_id].add(part)
        self._owners[part].add(member_id)

    def _take(self, member_id: str, part: TopicIdPartition) -> None:
        self._shares[member_id].discard(part)
        self._owners[part].discard(member_id)
