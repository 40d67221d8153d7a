"""The assignor `uniform`: every member has as many partitions as the next, and keeps what it has.

Balance first, then as few moves as possible. Members with the same subscription differ by one
partition at most; with different ones, no single move could make it more even.
"""

import heapq
from collections.abc import Iterable, Sequence

from millstream.broker.groups.assignment import Assignee, Assignment
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition


def assign_uniformly(assignees: Sequence[Assignee], catalog: TopicCatalog) -> Assignment:
    ledger = _Ledger(assignees)
    topic_ids = sorted(ledger.subscribers, key=lambda id_: (len(ledger.subscribers[id_]), id_))
    topic_ids = [id_ for id_ in topic_ids if catalog.with_id(id_) is not None]
    free = {id_: ledger.keep(id_, catalog.partitions_of(id_)) for id_ in topic_ids}
    for topic_id, partitions in free.items():
        ledger.hand_out(topic_id, partitions)
    is_level = False
    while not is_level:  # each move makes the loads more even, so this ends
        is_level = not any(ledger.level(topic_id) for topic_id in topic_ids)
    return ledger.assignment()


class _Ledger:
    """Who has what, while it is being shared out. Of two equals the first by name is served."""

    def __init__(self, assignees: Sequence[Assignee]) -> None:
        self._loads = {one.member_id: 0 for one in assignees}
        self._holders: dict[bytes, dict[TopicIdPartition, str]] = {}
        self.subscribers: dict[bytes, list[str]] = {}
        # Of each topic, by member; only those that have some.
        self._parts: dict[bytes, dict[str, list[TopicIdPartition]]] = {}
        for one in sorted(assignees, key=lambda one: one.rank):
            for topic_id in one.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(one.member_id)
            for part in one.held:
                if part.topic_id in one.topic_ids:
                    self._holders.setdefault(part.topic_id, {})[part] = one.member_id

    def assignment(self) -> Assignment:
        given: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in self._loads}
        for by_member in self._parts.values():
            for member_id, parts in by_member.items():
                given[member_id].update(parts)
        return {member_id: frozenset(parts) for member_id, parts in given.items()}

    def keep(
        self, topic_id: bytes, partitions: Iterable[TopicIdPartition]
    ) -> list[TopicIdPartition]:
        """What a subscriber had it has again; the rest is returned."""
        holders, free = self._holders.get(topic_id, {}), []
        for part in partitions:
            if part in holders:
                self._give(part, holders[part])
            else:
                free.append(part)
        return free

    def hand_out(self, topic_id: bytes, partitions: Sequence[TopicIdPartition]) -> None:
        """To whoever has least."""
        members = self.subscribers[topic_id]
        least = [(self._loads[member_id], rank) for rank, member_id in enumerate(members)]
        heapq.heapify(least)
        for part in partitions:
            load, rank = least[0]
            self._give(part, members[rank])
            heapq.heapreplace(least, (load + 1, rank))

    def level(self, topic_id: bytes) -> bool:
        """Move partitions of this topic from who has most to who has least; was there any?"""
        by_member = self._parts.get(topic_id, {})
        has_moved = False
        while by_member:
            rich = max(by_member, key=lambda member_id: self._loads[member_id])
            poor = min(self.subscribers[topic_id], key=lambda member_id: self._loads[member_id])
            if self._loads[rich] < self._loads[poor] + 2:
                break
            self._take(topic_id, rich, poor)
            has_moved = True
        return has_moved

    def _give(self, part: TopicIdPartition, member_id: str) -> None:
        self._parts.setdefault(part.topic_id, {}).setdefault(member_id, []).append(part)
        self._loads[member_id] += 1

    def _take(self, topic_id: bytes, rich: str, poor: str) -> None:
        """The last that came to it is the first to go: it is the likeliest not to be read yet."""
        by_member = self._parts[topic_id]
        part = by_member[rich].pop()
        if not by_member[rich]:
            del by_member[rich]
        self._loads[rich] -= 1
        self._give(part, poor)
