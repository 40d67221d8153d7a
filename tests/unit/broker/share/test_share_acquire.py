"""Which records a member of a share group gets, and which it does not."""

import pytest

from millstream.base.record import Record
from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.acquisition import (
    AcquireMode,
    Demand,
    Fetched,
    fetched_from,
    suspect_attempts,
)
from millstream.broker.share.delivery import RecordState
from millstream.broker.share.share_partition import SharePartition, ShareTerms
from millstream.log.record_batch import (
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    Marker,
    encode_batch,
    encode_marker,
    read_header,
)
from millstream.log.transaction_index import AbortedTransaction
from tests.unit.broker.share.steps import ADA, BOB, LOCK_MS, Queue, offsets

LIMITED = AcquireMode.RECORD_LIMIT
RECORD = Record(key=None, value=b"v", timestamp_ms=0)


def test_a_record_is_handed_to_one_member_only() -> None:
    queue = Queue((0, 5), (5, 10))
    assert queue.acquire(ADA, records_max=5) == [(0, 5)]
    assert queue.acquire(BOB) == [(5, 10)]
    assert queue.acquire(ADA) == queue.acquire(BOB) == []


def test_the_limit_is_rounded_up_to_whole_batches_of_the_log() -> None:
    queue = Queue((0, 10), (10, 20), (20, 30))
    assert queue.acquire(records_max=11) == [(0, 20)]


def test_the_limit_is_exact_if_the_member_asks_for_that() -> None:
    queue = Queue((0, 10), (10, 20))
    assert queue.acquire(ADA, records_max=3, mode=LIMITED) == [(0, 3)]
    assert queue.acquire(BOB, records_max=9, mode=LIMITED) == [(3, 12)]
    assert queue.acquire(ADA, records_max=9) == [(12, 20)]


def test_what_lies_beyond_the_limit_is_not_in_flight() -> None:
    queue = Queue((0, 4), (6, 8), (10, 12))
    queue.acquire(records_max=2, mode=LIMITED)
    assert queue.partition.end_offset == 2
    queue.acquire(records_max=2)
    assert queue.partition.end_offset == 6


def test_what_is_acquired_comes_in_batches_of_the_size_asked_for() -> None:
    queue = Queue((0, 4), (4, 8), (8, 12), (12, 16))
    assert queue.acquire(batch_size=6) == [(0, 8), (8, 16)]


def test_nothing_new_is_handed_out_beyond_the_limit_in_flight() -> None:
    queue = Queue((0, 30), records_in_flight_max=20)
    assert queue.acquire(ADA, mode=LIMITED) == [(0, 20)]
    assert queue.partition.next_fetch_offset is None
    queue.acknowledge(0, 1)
    assert queue.acquire(BOB, mode=LIMITED) == [(20, 21)]
    assert queue.partition.next_fetch_offset is None


def test_a_batch_that_begins_below_the_limit_in_flight_is_handed_out_whole() -> None:
    queue = Queue((0, 15), (15, 30), (30, 40), records_in_flight_max=20)
    assert queue.acquire(ADA, batch_size=1) == [(0, 15), (15, 30)]
    assert queue.partition.next_fetch_offset is None
    queue.acknowledge(0, 10)
    assert queue.partition.next_fetch_offset is None
    queue.acknowledge(10, 12)
    assert queue.acquire(BOB) == [(30, 40)]


def test_released_records_come_again_though_the_limit_is_reached() -> None:
    queue = Queue((0, 30), records_in_flight_max=20)
    queue.acquire(ADA)
    queue.release(4, 6)
    assert queue.acquire(BOB) == [(4, 6)]


def test_released_records_come_before_new_ones() -> None:
    queue = Queue((0, 10), (10, 20))
    queue.acquire(ADA, records_max=10)
    queue.release(3, 5)
    assert queue.partition.next_fetch_offset == 3
    assert [(one.offsets, one.delivery_count) for one in queue.acquired(BOB)] == [
        (offsets(3, 5), 2),
        (offsets(10, 20), 1),
    ]


def test_offsets_without_a_record_hold_nobody_up() -> None:
    queue = Queue((3, 5), (8, 10))
    assert queue.acquire() == [(3, 5), (8, 10)]
    assert queue.partition.start_offset == 3
    queue.acknowledge(3, 5)
    assert queue.partition.start_offset == 8
    assert queue.states == [(8, 10, RecordState.ACQUIRED, 1)]


def test_offsets_without_a_record_count_as_in_flight_while_one_before_them_is() -> None:
    queue = Queue((0, 2), (100, 102), records_in_flight_max=10)
    assert queue.acquire() == [(0, 2)]
    assert (queue.partition.end_offset, queue.partition.next_fetch_offset) == (10, None)
    queue.acknowledge(0, 2)
    while (found := queue.acquire()) == []:
        pass
    assert found == [(100, 102)]


def test_a_released_record_that_compaction_took_away_is_done() -> None:
    queue = Queue((0, 10))
    queue.acquire()
    queue.release(0, 10)
    queue.batches = [offsets(6, 10)]
    assert queue.acquire() == [(6, 10)]
    assert queue.partition.start_offset == 6


def test_a_read_that_gave_nothing_to_see_moves_the_start() -> None:
    queue = Queue()
    queue.end = 7
    assert queue.acquire() == []
    assert (queue.partition.start_offset, queue.partition.end_offset) == (7, 7)


def test_a_late_read_gives_only_what_is_still_there() -> None:
    """Two members read at the same time; the second one finds what the first one left."""
    queue = Queue((0, 10), (10, 20))
    read = queue.read(0)
    queue.acquire(ADA, records_max=10)
    demand = Demand(member_id=BOB, records_max=10, batch_size=10)
    late = queue.partition.acquire(read, demand, now_ms=0)
    assert [one.offsets for one in late] == [offsets(10, 20)]


def test_a_record_that_came_free_before_a_late_read_is_not_lost() -> None:
    """It lies before the read, so the read says nothing about it."""
    queue = Queue((0, 10), (10, 20))
    queue.acquire(ADA, records_max=10)
    read = queue.read(10)
    queue.release(2, 4)
    queue.partition.acquire(read, Demand(member_id=BOB, records_max=1, batch_size=1), now_ms=0)
    assert queue.acquire(BOB) == [(2, 4)]


def test_a_read_from_before_the_start_moved_gives_nothing_deleted() -> None:
    queue = Queue((0, 10))
    read = queue.read(0)
    queue.partition.move_start_to(4)
    demand = Demand(member_id=ADA, records_max=100, batch_size=100)
    acquired = queue.partition.acquire(read, demand, now_ms=0)
    assert [one.offsets for one in acquired] == [offsets(4, 10)]


def header(start: int, end: int, producer_id: int | None = None) -> BatchHeader:
    batch = encode_batch(
        [RECORD] * (end - start),
        base_offset=start,
        producer_id=NO_PRODUCER_ID if producer_id is None else producer_id,
        attributes=0 if producer_id is None else TRANSACTIONAL,
    )
    return read_header(batch)


def marker(offset: int, producer_id: int) -> BatchHeader:
    batch = encode_marker(Marker(False, 0), producer_id=producer_id, producer_epoch=0, now_ms=0)
    return read_header(batch)._replace(base_offset=offset)


# Producer 7 aborts what it wrote at 2 to 4, and then writes again; producer 8 commits.
TRANSACTIONS = [header(0, 2), header(2, 5, 7), header(5, 7, 8), marker(7, 7), header(8, 9, 7)]
ABORTED = [AbortedTransaction(7, 2, 7, 8)]


def test_records_of_aborted_transactions_and_markers_are_not_to_be_seen() -> None:
    fetched = fetched_from(0, TRANSACTIONS, ABORTED)
    assert fetched == Fetched(
        offset=0, batches=(offsets(0, 2), offsets(5, 7), offsets(8, 9)), end=9
    )


def test_who_reads_uncommitted_sees_all_but_markers() -> None:
    fetched = fetched_from(0, TRANSACTIONS)
    assert fetched.batches == (offsets(0, 2), offsets(2, 5), offsets(5, 7), offsets(8, 9))


def test_what_is_not_to_be_seen_is_done_without_being_handed_out() -> None:
    partition = SharePartition(0, terms=ShareTerms())
    demand = Demand(member_id=ADA, records_max=100, batch_size=100)
    acquired = partition.acquire(fetched_from(0, TRANSACTIONS, ABORTED), demand, now_ms=0)
    assert [one.offsets for one in acquired] == [offsets(0, 2), offsets(5, 7), offsets(8, 9)]
    assert partition.complete_count == 4


def test_a_batch_that_compaction_has_emptied_is_not_to_be_seen() -> None:
    empty = TRANSACTIONS[0]._replace(record_count=0)
    assert fetched_from(0, [empty]) == Fetched(offset=0, batches=(), end=2)


@pytest.mark.parametrize(("attempts_max", "suspect"), [(1, 2), (2, 2), (4, 2), (5, 3), (10, 5)])
def test_from_half_of_all_attempts_on_a_record_is_suspect(attempts_max: int, suspect: int) -> None:
    assert suspect_attempts(attempts_max) == suspect


def test_suspect_records_go_in_halves_and_at_last_alone() -> None:
    """Five attempts: three together, the fourth with half of the batch, the last one alone."""
    queue = Queue((0, 8))
    queue.fail(2)
    assert queue.acquire() == [(0, 8)]
    queue.wait(LOCK_MS)
    assert queue.acquire() == [(0, 4)]
    assert queue.acquire(BOB) == [(4, 8)]
    queue.wait(LOCK_MS)
    assert [queue.acquire() for _ in range(8)] == [[(at, at + 1)] for at in range(8)]


def test_halves_are_those_of_the_first_batch() -> None:
    queue = Queue((0, 8), delivery_count_max=10)
    queue.fail(5)
    assert [queue.acquire() for _ in range(2)] == [[(0, 4)], [(4, 8)]]
    queue.wait(LOCK_MS)
    assert [queue.acquire() for _ in range(4)] == [[(0, 2)], [(2, 4)], [(4, 6)], [(6, 8)]]


def test_a_suspect_record_does_not_come_with_others() -> None:
    queue = Queue((0, 1), (1, 2), (2, 3), delivery_count_max=4)
    queue.acquire(BOB, records_max=1)
    for _ in range(2):
        queue.acquire(records_max=1)
        queue.release(1, 2)
    queue.release(0, 1, member_id=BOB)
    assert queue.acquire() == [(0, 1)]
    assert queue.acquire() == [(1, 2)]
    assert queue.acquire() == [(2, 3)]


def test_a_hundred_thousand_records_in_flight_are_a_handful_of_runs() -> None:
    batches = [(at, at + 500) for at in range(0, 100_000, 500)]
    queue = Queue(*batches, records_in_flight_max=200_000)
    queue.acquire(ADA, records_max=50_000, batch_size=50_000)
    queue.acquire(BOB, records_max=50_000, batch_size=50_000)
    assert queue.states == [
        (0, 50_000, RecordState.ACQUIRED, 1),
        (50_000, 100_000, RecordState.ACQUIRED, 1),
    ]
    queue.acknowledge(10, 99, AcknowledgeType.ACCEPT)
    assert len(queue.states) == 4


def test_an_empty_read_is_nothing() -> None:
    assert fetched_from(3, []) == Fetched(offset=3, batches=(), end=3)
