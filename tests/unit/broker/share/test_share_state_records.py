"""The records of `__share_group_state`, byte for byte as Kafka lays them out."""

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.share_state_records import (
    ShareHistories,
    ShareJournal,
    SharePartitionKey,
    ShareStateRecord,
    StoredShare,
    read_share_key,
    replay,
)
from millstream.broker.wire import ZERO_UUID
from tests.unit.broker.share.steps import Queue

TOPIC_ID = bytes(range(16))
KEY = SharePartitionKey("g1", TOPIC_ID, 3)
SNAPSHOT_KEY = b"\0\0\0\2g1" + TOPIC_ID + b"\0\0\0\3"
UPDATE_KEY = b"\0\1\0\2g1" + TOPIC_ID + b"\0\0\0\3"

SNAPSHOT = (
    b"\0\0"  # version
    b"\0\0\0\0"  # snapshot epoch
    b"\0\0\0\7"  # state epoch
    b"\0\0\0\2"  # leader epoch
    b"\0\0\0\0\0\0\0\0"  # start offset
    b"\0\0\0\0\0\0\1\0"  # create timestamp
    b"\0\0\0\0\0\0\1\0"  # write timestamp
    b"\3"  # state batches: two
    b"\0\0\0\0\0\0\0\2" b"\0\0\0\0\0\0\0\4" b"\2" b"\0\1" b"\0"  # 2 to 4, acknowledged, once
    b"\0\0\0\0\0\0\0\5" b"\0\0\0\0\0\0\0\6" b"\0" b"\0\1" b"\0"  # 5 to 6, available, once
    b"\1\0\4\0\0\0\3"  # one tagged field, 0, of 4 bytes: delivery complete count
)  # fmt: skip
UPDATE = (
    b"\0\0"  # version
    b"\0\0\0\0"  # snapshot epoch
    b"\0\0\0\2"  # leader epoch
    b"\0\0\0\0\0\0\0\5"  # start offset
    b"\2"  # state batches: one
    b"\0\0\0\0\0\0\0\7" b"\0\0\0\0\0\0\0\7" b"\4" b"\0\1" b"\0"  # 7, archived, once
    b"\1\0\4\0\0\0\1"  # delivery complete count
)  # fmt: skip


def busy_queue() -> Queue:
    queue = Queue((0, 10))
    queue.acquire()
    queue.acknowledge(2, 5)
    queue.release(5, 7)
    return queue


def journal(**more: int) -> ShareJournal:
    return ShareJournal(KEY, StoredShare(state_epoch=7, leader_epoch=2), **more)


def next_record(kept: ShareJournal, queue: Queue) -> tuple[bytes, bytes]:
    record = kept.next_record(queue.partition, now_ms=256)
    assert record is not None
    key, value = record
    assert value is not None
    return key, value


def test_the_first_record_is_a_snapshot_and_then_come_updates() -> None:
    queue, kept = busy_queue(), journal()
    assert next_record(kept, queue) == (SNAPSHOT_KEY, SNAPSHOT)
    queue.acknowledge(0, 2)
    queue.acknowledge(7, 8, AcknowledgeType.REJECT)
    assert next_record(kept, queue) == (UPDATE_KEY, UPDATE)
    assert kept.next_record(queue.partition, now_ms=256) is None


def test_after_so_many_updates_comes_a_snapshot_again() -> None:
    queue, kept = busy_queue(), journal(updates_max=2)
    keys = [next_record(kept, queue)[0]]
    for at in (0, 1, 7, 8, 9):
        queue.acknowledge(at, at + 1)
        keys.append(next_record(kept, queue)[0])
    snapshots = [key == SNAPSHOT_KEY for key in keys]
    assert snapshots == [True, False, False, True, False, False]


def test_a_log_that_keeps_the_newest_of_each_key_gets_snapshots_only() -> None:
    queue, kept = busy_queue(), journal(updates_max=0)
    assert next_record(kept, queue)[0] == SNAPSHOT_KEY
    queue.acknowledge(0, 2)
    assert next_record(kept, queue)[0] == SNAPSHOT_KEY


def test_records_replayed_in_order_are_the_partition() -> None:
    queue, kept = busy_queue(), journal(updates_max=2)
    records: list[ShareStateRecord] = [kept.begin(now_ms=0), next_record(kept, queue)]
    for at in (0, 1, 7, 8):
        queue.acknowledge(at, at + 1)
        records.append(next_record(kept, queue))
    found: StoredShare | None = None
    for key, value in records:
        found = replay(found, key, value)
    assert found is not None
    before = queue.states
    queue.restart(found.state)
    assert queue.states == [run for run in before if run[0] != 9]
    assert (found.state_epoch, found.leader_epoch, found.created_ms) == (7, 2, 0)


def test_a_history_adds_up_to_the_same_as_its_records_one_by_one() -> None:
    queue, kept = busy_queue(), journal(updates_max=3)
    one_by_one: StoredShare | None = None
    histories = ShareHistories()
    for at in (0, 1, 7, 8, 9):
        queue.acknowledge(at, at + 1)
        key, value = next_record(kept, queue)
        one_by_one = replay(one_by_one, key, value)
        histories.add(key, value)
        assert histories.replay() == {KEY: one_by_one}
    histories.add(*kept.end())
    assert histories.replay() == {}


def test_of_a_long_history_only_what_follows_the_last_snapshot_is_understood() -> None:
    """Or else a broker that comes back would be busy for minutes with what counts no more."""
    histories = ShareHistories()
    histories.add(SNAPSHOT_KEY, SNAPSHOT)
    histories.add(UPDATE_KEY, b"not an update")
    histories.add(SNAPSHOT_KEY, SNAPSHOT)
    assert histories.replay() == {KEY: replay(None, SNAPSHOT_KEY, SNAPSHOT)}


def test_a_partition_that_nobody_has_fetched_from_has_no_start() -> None:
    key, value = journal().begin(now_ms=1)
    begun = replay(None, key, value)
    assert begun is not None
    assert not begun.state.is_started


def test_a_journal_goes_on_where_the_log_ends() -> None:
    queue, kept = busy_queue(), journal()
    found = replay(None, *next_record(kept, queue))
    assert found is not None
    queue.restart(found.state)
    queue.acquire()
    queue.acknowledge(0, 2)
    assert next_record(ShareJournal(KEY, found), queue)[0] == UPDATE_KEY


def test_after_a_failed_write_all_there_is_can_be_written() -> None:
    queue, kept = busy_queue(), journal()
    lost = next_record(kept, queue)
    key, value = kept.repair(queue.partition, now_ms=256)
    repaired, intended = replay(None, key, value), replay(None, *lost)
    assert repaired is not None
    assert intended is not None
    assert repaired.state == intended.state
    assert repaired.snapshot_epoch == intended.snapshot_epoch + 1


def test_a_partition_is_removed_by_a_snapshot_without_a_value() -> None:
    key, value = journal().end()
    assert (key, value) == (SNAPSHOT_KEY, None)
    assert replay(StoredShare(state_epoch=0), key, value) is None


def test_both_keys_name_the_partition() -> None:
    assert read_share_key(SNAPSHOT_KEY) == read_share_key(UPDATE_KEY) == KEY


@pytest.mark.parametrize("key", [b"", b"\0\2\0\2g1" + ZERO_UUID + b"\0\0\0\0", SNAPSHOT_KEY[:-1]])
def test_a_key_that_cannot_be_one_is_corrupt(key: bytes) -> None:
    with pytest.raises(Corrupt):
        read_share_key(key)


@pytest.mark.parametrize(
    "value",
    [
        SNAPSHOT[:-1],
        SNAPSHOT.replace(b"\2\0\1\0", b"\3\0\1\0"),  # no such state
        SNAPSHOT.replace(b"\2\0\1\0", b"\1\0\1\0"),  # acquired
        SNAPSHOT.replace(b"\0\0\0\5\0\0\0\0", b"\0\0\0\4\0\0\0\0"),  # overlapping batches
        SNAPSHOT.replace(b"\0\0\0\2\0\0\0\0\0\0\0\0", b"\0\0\0\2\0\0\0\0\0\0\0\3"),  # before it
    ],
)
def test_a_snapshot_that_cannot_be_one_is_corrupt(value: bytes) -> None:
    assert value != SNAPSHOT
    with pytest.raises(Corrupt):
        replay(None, SNAPSHOT_KEY, value)


def test_an_update_may_leave_the_start_as_it_was() -> None:
    """Kafka writes such updates."""
    begun = replay(
        None,
        SNAPSHOT_KEY,
        SNAPSHOT.replace(b"\0\0\0\2\0\0\0\0\0\0\0\0", b"\0\0\0\2\0\0\0\0\0\0\0\1"),
    )
    kept = replay(begun, UPDATE_KEY, UPDATE.replace(b"\0\0\0\0\0\0\0\5", b"\xff" * 8, 1))
    assert begun is not None
    assert kept is not None
    assert (begun.state.start_offset, kept.state.start_offset) == (1, 1)
    assert len(kept.state.batches) == len(begun.state.batches) + 1


def test_an_update_without_a_snapshot_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        replay(None, UPDATE_KEY, UPDATE)
