"""How far a group has read: its committed offsets, of any kind of group.

A pure store. The shell checks a commit, appends and syncs its record, and only then calls
`commit`, in the order of the log: what can be fetched is on disk. Who may commit depends on the
kind of group, and is asked elsewhere (`offset_rules.py`). Offsets of open transactions are held
apart until those end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from millstream.broker.wire.error_codes import ErrorCode

OFFSET_METADATA_LENGTH_MAX = 4_096  # Kafka's default; it counts characters, too
NO_LEADER_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """`offset` is the next one to read. `expires_ms` only if the client set its own retention."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_ms: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryRule:
    """From when on the retention of a group's offsets counts, and which of them it spares.

    It counts from the commit, but not from before `counted_from_ms`. (Kafka takes that moment
    alone, and so drops at once what an operator sets for a group that was long empty.)
    """

    counted_from_ms: int = 0
    kept_topics: frozenset[str] = frozenset()

    def is_expired(
        self, where: TopicPartition, committed: CommittedOffset, *, now_ms: int, retention_ms: int
    ) -> bool:
        if where.topic in self.kept_topics:
            return False
        if committed.expires_ms is not None:
            return now_ms >= committed.expires_ms
        return now_ms - max(committed.committed_ms, self.counted_from_ms) >= retention_ms


class GroupOffsets:
    """The last committed offset of each partition that a group has read."""

    def __init__(self, *, metadata_length_max: int = OFFSET_METADATA_LENGTH_MAX) -> None:
        self._metadata_length_max = metadata_length_max
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        # Of open transactions, by the producer's id: they count once that commits.
        self._held: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """A copy, sorted by topic and partition."""
        return iter(sorted(self._committed.items(), key=lambda item: item[0]))

    def check(self, committed: CommittedOffset) -> ErrorCode:
        """One partition of an OffsetCommit; the others do not suffer from it."""
        if len(committed.metadata) > self._metadata_length_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def commit(self, where: TopicPartition, committed: CommittedOffset) -> None:
        self._committed[where] = committed

    def hold(self, producer_id: int, where: TopicPartition, committed: CommittedOffset) -> None:
        """An offset that counts if, and when, the producer's transaction is committed."""
        self._held.setdefault(producer_id, {})[where] = committed

    def release(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction has ended."""
        held = self._held.pop(producer_id, {})
        if is_commit:
            self._committed.update(held)

    def is_held(self, where: TopicPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        return any(where in held for held in self._held.values())

    def drop_held(self, topic: str | None = None) -> list[tuple[int, TopicPartition]]:
        """Forget what open transactions hold, for one topic or for all: whose, and where."""
        dropped = [
            (producer_id, where)
            for producer_id, held in self._held.items()
            for where in held
            if topic in (None, where.topic)
        ]
        for producer_id, where in dropped:
            del self._held[producer_id][where]
        return dropped

    @property
    def has_held(self) -> bool:
        return bool(self._held)

    def fetch(self, where: TopicPartition) -> CommittedOffset | None:
        return self._committed.get(where)

    def delete(self, where: TopicPartition) -> None:
        """Also for a partition without an offset: a tombstone may be read twice."""
        self._committed.pop(where, None)

    def expired(
        self, rule: ExpiryRule | None, *, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """What to write tombstones for, and then `delete`. Without a rule nothing expires."""
        if rule is None:
            return []
        return [
            where
            for where, committed in self
            if rule.is_expired(where, committed, now_ms=now_ms, retention_ms=retention_ms)
        ]
