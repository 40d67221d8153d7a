"""Records that are given up in a group with a dead-letter topic: done only once they are buried."""

from millstream.broker.share.acknowledgement import AcknowledgeType
from millstream.broker.share.delivery import RecordState
from millstream.broker.share.share_partition import DeadLetterReason
from tests.unit.broker.share.steps import ADA, BOB, LOCK_MS, Queue


def keeping(*batches: tuple[int, int], **terms: int) -> Queue:
    queue = Queue(*batches, **terms)
    queue.partition.keeps_dead_letters = True
    return queue


def test_a_rejected_record_is_not_done_before_it_is_buried() -> None:
    queue = keeping((0, 2))
    queue.acquire()
    letters = queue.acknowledge(0, 1, AcknowledgeType.REJECT)
    assert [letter.reason for letter in letters] == [DeadLetterReason.REJECTED]
    assert queue.partition.start_offset == 0
    queue.partition.bury(letters)
    assert queue.partition.start_offset == 1


def test_nobody_gets_a_record_whose_letter_is_being_written() -> None:
    queue = keeping((0, 2))
    queue.acquire()
    queue.acknowledge(0, 2, AcknowledgeType.REJECT)
    queue.give_back(ADA)
    assert queue.acquire(BOB) == []


def test_what_is_not_buried_is_not_stored_as_done() -> None:
    queue = keeping((0, 2))
    queue.acquire()
    queue.acknowledge(0, 1, AcknowledgeType.ACCEPT)
    letters = queue.acknowledge(1, 2, AcknowledgeType.REJECT)
    assert queue.partition.state.start_offset == 1
    queue.partition.bury(letters)
    assert queue.partition.state.start_offset == 2


def test_a_record_that_is_never_buried_comes_again_with_the_same_count() -> None:
    queue = keeping((0, 1), delivery_count_max=2)
    queue.fail(1)
    assert queue.acquire() == [(0, 1)]
    assert len(queue.release(0, 1)) == 1
    queue.wait(LOCK_MS)
    assert queue.states == [(0, 1, RecordState.AVAILABLE, 1)]
    queue.acquire()
    assert [letter.delivery_count for letter in queue.release(0, 1)] == [2]


def test_a_burial_that_comes_too_late_takes_nothing_from_who_holds_it_now() -> None:
    queue = keeping((0, 1))
    queue.acquire()
    letters = queue.acknowledge(0, 1, AcknowledgeType.REJECT)
    queue.wait(LOCK_MS)
    queue.acquire(BOB)
    queue.partition.bury(letters)
    assert queue.states == [(0, 1, RecordState.ACQUIRED, 1)]


def test_a_lock_that_runs_out_for_the_last_time_is_a_letter_too() -> None:
    queue = keeping((0, 1), delivery_count_max=1)
    queue.acquire()
    queue.now_ms += LOCK_MS
    [letter] = queue.partition.expire(queue.now_ms)
    assert letter.reason is DeadLetterReason.DELIVERIES_USED_UP
    assert letter.member_id == ADA
    queue.partition.bury((letter,))
    assert queue.partition.start_offset == 1
