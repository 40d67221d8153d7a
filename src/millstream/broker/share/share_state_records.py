"""Records of the topic `__share_group_state`, in Kafka's layouts.

    key 0  ShareSnapshotKey   group, topic id, partition   -> all there is: ShareSnapshotValue
    key 1  ShareUpdateKey     group, topic id, partition   -> what has changed: ShareUpdateValue

Keys start with that number, values with their version, which is 0. A snapshot with a null value
removes the partition from the group. Updates add up, so all since the last snapshot are needed:
a log that keeps only the newest record of each key must have snapshots alone (`updates_max` 0).
Offsets on disk are inclusive at both ends; here they are not at the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from millstream.base.errors import Corrupt
from millstream.broker.share.delivery import DurableDelivery, RecordState
from millstream.broker.share.share_partition import SharePartition
from millstream.broker.share.share_state import ShareState, StateBatch, StateChange
from millstream.broker.wire import ZERO_UUID, MalformedMessage, decode_versioned, encode_versioned
from millstream.broker.wire.message import Message, field

SNAPSHOT_KEY_VERSION = 0
UPDATE_KEY_VERSION = 1
VALUE_VERSION = 0
NO_EPOCH = -1
NOT_STARTED = ShareState()
UPDATES_MAX = 500  # share.coordinator.snapshot.update.records.per.snapshot

ShareStateRecord = tuple[bytes, bytes | None]


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int


class ShareStateKey(Message, versions="0-1"):
    group_id: str = field("string", "0+", default="")
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    partition: int = field("int32", "0+", default=0)


class StateBatchValue(Message):
    first_offset: int = field("int64", "0+", default=0)
    last_offset: int = field("int64", "0+", default=0)
    delivery_state: int = field("int8", "0+", default=0)
    delivery_count: int = field("int16", "0+", default=0)


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = field("int32", "0+", default=0)
    state_epoch: int = field("int32", "0+", default=0)
    leader_epoch: int = field("int32", "0+", default=0)
    start_offset: int = field("int64", "0+", default=0)
    create_timestamp: int = field("int64", "0+", default=0)
    write_timestamp: int = field("int64", "0+", default=0)
    state_batches: list[StateBatchValue] = field([StateBatchValue], "0+", default_factory=list)
    delivery_complete_count: int = field("int32", "0+", tag=0, default=-1)


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = field("int32", "0+", default=0)
    leader_epoch: int = field("int32", "0+", default=0)
    start_offset: int = field("int64", "0+", default=0)
    state_batches: list[StateBatchValue] = field([StateBatchValue], "0+", default_factory=list)
    delivery_complete_count: int = field("int32", "0+", tag=0, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShare:
    """What the log says of one share partition.

    `state_epoch` rises when the group's offsets are reset. `snapshot_epoch` counts snapshots,
    `update_count` the updates since the last one.
    """

    state_epoch: int
    leader_epoch: int = NO_EPOCH
    snapshot_epoch: int = NO_EPOCH
    update_count: int = 0
    created_ms: int = -1
    state: ShareState = NOT_STARTED


class ShareJournal:
    """What to append for one share partition, in the order in which it is asked.

    Owns the partition's changes: nobody else takes them.
    """

    def __init__(
        self, key: SharePartitionKey, stored: StoredShare, *, updates_max: int = UPDATES_MAX
    ) -> None:
        self.key = key
        self._stored = stored
        self._updates_max = updates_max

    @property
    def stored(self) -> StoredShare:
        """How far the epochs have come; its `state` is that of the beginning."""
        return self._stored

    def begin(self, *, now_ms: int) -> ShareStateRecord:
        """The group may fetch from this partition now, and nobody has: the start is open."""
        change = StateChange(start_offset=-1, complete_count=0, batches=())
        return self._snapshot(change, now_ms)

    def next_record(self, partition: SharePartition, *, now_ms: int) -> ShareStateRecord | None:
        """What the partition has not stored yet; None if that is nothing."""
        if not partition.has_unsaved_change:
            return None
        stored = self._stored
        if stored.snapshot_epoch == NO_EPOCH or stored.update_count >= self._updates_max:
            return self._snapshot(partition.take_everything(), now_ms)
        change = partition.take_change()
        assert change is not None
        self._stored = replace(stored, update_count=stored.update_count + 1)
        return _key_bytes(self.key, UPDATE_KEY_VERSION), _update_value(stored, change)

    def repair(self, partition: SharePartition, *, now_ms: int) -> ShareStateRecord:
        """All there is, after a record that may not have reached the disk."""
        return self._snapshot(partition.take_everything(), now_ms)

    def end(self) -> ShareStateRecord:
        return _key_bytes(self.key, SNAPSHOT_KEY_VERSION), None

    def _snapshot(self, change: StateChange, now_ms: int) -> ShareStateRecord:
        is_first = self._stored.snapshot_epoch == NO_EPOCH
        self._stored = replace(
            self._stored,
            snapshot_epoch=self._stored.snapshot_epoch + 1,
            update_count=0,
            created_ms=now_ms if is_first else self._stored.created_ms,
        )
        value = _snapshot_value(self._stored, change, now_ms)
        return _key_bytes(self.key, SNAPSHOT_KEY_VERSION), value


def replay(
    before: StoredShare | None, key: bytes, value: bytes | None, *updates: bytes
) -> StoredShare | None:
    """What is stored of a partition after one more record of it, and after updates that follow;
    None if it was removed."""
    if value is None:
        return None
    try:
        if _version_of(key) == SNAPSHOT_KEY_VERSION:
            _, snapshot = decode_versioned(ShareSnapshotValue, value)
            return _updated(_from_snapshot(snapshot), updates)
        return _updated(before, (value, *updates))
    except (MalformedMessage, ValueError) as error:
        name = read_share_key(key)
        raise Corrupt(f"__share_group_state: {name} cannot be read: {error}") from error


class ShareHistories:
    """Records of the log as they are read; of each partition those that still count are kept.

    That is the last snapshot, and the updates behind it: whatever the log's length, no more than
    `UPDATES_MAX` of them have to be understood.
    """

    def __init__(self) -> None:
        self._records: dict[bytes, list[ShareStateRecord]] = {}

    def add(self, key: bytes, value: bytes | None) -> None:
        partition = key[2:]  # behind the version, both kinds of keys are the same
        if value is None:
            self._records.pop(partition, None)
        elif _version_of(key) == UPDATE_KEY_VERSION:
            self._records.setdefault(partition, []).append((key, value))
        else:
            self._records[partition] = [(key, value)]

    def replay(self) -> dict[SharePartitionKey, StoredShare]:
        stored = {}
        for (key, value), *updates in self._records.values():
            share = replay(None, key, value, *(update or b"" for _, update in updates))
            assert share is not None
            stored[read_share_key(key)] = share
        return stored


def read_share_key(data: bytes) -> SharePartitionKey:
    version = _version_of(data)
    if version not in (SNAPSHOT_KEY_VERSION, UPDATE_KEY_VERSION):
        raise Corrupt(f"__share_group_state: a key of version {version}, known are 0 and 1")
    try:
        _, key = decode_versioned(ShareStateKey, data)
    except MalformedMessage as error:
        raise Corrupt(f"__share_group_state: a key cannot be read: {error}") from error
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def _version_of(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def _key_bytes(key: SharePartitionKey, version: int) -> bytes:
    message = ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return encode_versioned(message, version)


def _snapshot_value(stored: StoredShare, change: StateChange, now_ms: int) -> bytes:
    value = ShareSnapshotValue(
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=change.start_offset,
        create_timestamp=stored.created_ms,
        write_timestamp=now_ms,
        state_batches=_batch_values(change.batches),
        delivery_complete_count=change.complete_count,
    )
    return encode_versioned(value, VALUE_VERSION)


def _update_value(stored: StoredShare, change: StateChange) -> bytes:
    value = ShareUpdateValue(
        snapshot_epoch=stored.snapshot_epoch,
        leader_epoch=stored.leader_epoch,
        start_offset=change.start_offset,
        state_batches=_batch_values(change.batches),
        delivery_complete_count=change.complete_count,
    )
    return encode_versioned(value, VALUE_VERSION)


def _from_snapshot(value: ShareSnapshotValue) -> StoredShare:
    state = ShareState(
        start_offset=value.start_offset,
        complete_count=max(0, value.delivery_complete_count),
        batches=_batches(value.state_batches),
    )
    if state.batches and state.batches[0].start < state.start_offset:
        raise ValueError(f"a batch begins before the start, {state.start_offset}")
    return StoredShare(
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        snapshot_epoch=value.snapshot_epoch,
        created_ms=value.create_timestamp,
        state=state,
    )


def _updated(before: StoredShare | None, values: Sequence[bytes]) -> StoredShare:
    """All updates at once: each alone would cost as much as the whole state."""
    if before is None:
        raise ValueError("an update without a snapshot before it")
    changes: list[StateChange] = []
    start_offset, leader_epoch = before.state.start_offset, before.leader_epoch
    for value in values:
        _, update = decode_versioned(ShareUpdateValue, value)
        if update.start_offset != -1:  # Kafka's: the start is as it was
            start_offset = update.start_offset
        leader_epoch = max(leader_epoch, update.leader_epoch)
        changes.append(_change_from(update, start_offset))
    return replace(
        before,
        leader_epoch=leader_epoch,
        update_count=before.update_count + len(changes),
        state=before.state.changed(*changes),
    )


def _change_from(update: ShareUpdateValue, start_offset: int) -> StateChange:
    return StateChange(
        start_offset=start_offset,
        complete_count=max(0, update.delivery_complete_count),
        batches=_batches(update.state_batches),
    )


def _batch_values(batches: Iterable[StateBatch]) -> list[StateBatchValue]:
    return [
        StateBatchValue(
            first_offset=batch.start,
            last_offset=batch.end - 1,
            delivery_state=batch.delivery.state,
            delivery_count=batch.delivery.attempts,
        )
        for batch in batches
    ]


def _batches(values: Iterable[StateBatchValue]) -> tuple[StateBatch, ...]:
    batches = tuple(
        StateBatch(
            value.first_offset,
            value.last_offset + 1,
            DurableDelivery(value.delivery_count, RecordState(value.delivery_state)),
        )
        for value in values
    )
    if any(batch.delivery.state is RecordState.ACQUIRED for batch in batches):
        raise ValueError("a record that is held is never stored as such")
    is_disordered = any(later.start < batch.end for batch, later in pairwise(batches))
    if is_disordered or any(batch.start >= batch.end for batch in batches):
        raise ValueError("its batches are not in order")
    return batches
