"""Offsets that open transactions hold: they count once their transaction is committed.

Which group holds what is in its `GroupOffsets`; here is who has to be told when a transaction ends,
and what must go then because its topic or its group went meanwhile.
"""

from collections.abc import Sequence

from millstream.broker.coordinated_group import CoordinatedGroup
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.group_records import offset_key


class HeldOffsets:
    """By producer id: an open transaction is its producer's only one. Owned by the loop."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[str, CoordinatedGroup]] = {}
        self._doomed: dict[int, list[bytes]] = {}  # their keys

    def hold(
        self,
        producer_id: int,
        group: CoordinatedGroup,
        commits: Sequence[tuple[TopicPartition, CommittedOffset]],
    ) -> None:
        self._groups.setdefault(producer_id, {})[group.members.group_id] = group
        for where, committed in commits:
            group.offsets.hold(producer_id, where, committed)

    def doom(self, group: CoordinatedGroup, topic: str | None = None) -> None:
        """What is held of the group, or of one topic, goes when its transaction ends."""
        for producer_id, where in group.offsets.drop_held(topic):
            key = offset_key(group.members.group_id, where)
            self._doomed.setdefault(producer_id, []).append(key)

    def end(self, producer_id: int, *, is_commit: bool) -> list[bytes]:
        """Let them count, or drop them. Returns the keys of what a commit must not bring back."""
        for group in self._groups.pop(producer_id, {}).values():
            group.offsets.release(producer_id, is_commit=is_commit)
        doomed = self._doomed.pop(producer_id, [])
        return doomed if is_commit else []
