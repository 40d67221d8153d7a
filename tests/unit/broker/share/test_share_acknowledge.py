"""What becomes of a record that a member has been given."""

import pytest

from millstream.broker.share.acknowledgement import (
    Acknowledgement,
    AcknowledgeType,
    InvalidAcknowledgement,
    NotAcquired,
    acknowledgement_of,
    check_acknowledgements,
)
from millstream.broker.share.delivery import RecordState
from millstream.broker.share.lock_deadlines import ENTRIES_MIN
from millstream.broker.share.share_partition import DeadLetter, DeadLetterReason
from tests.unit.broker.share.steps import ADA, BOB, LOCK_MS, Queue, offsets

A = AcknowledgeType


def test_accepted_records_are_done_and_the_start_moves_on() -> None:
    queue = Queue((0, 10))
    queue.acquire()
    queue.acknowledge(2, 4)
    assert (queue.partition.start_offset, queue.partition.complete_count) == (0, 2)
    queue.acknowledge(0, 2)
    assert (queue.partition.start_offset, queue.partition.complete_count) == (4, 0)


def test_each_record_of_a_batch_may_end_differently() -> None:
    queue = Queue((0, 6))
    queue.acquire()
    letters = queue.acknowledge(0, 5, A.RENEW, A.ACCEPT, A.RELEASE, A.REJECT, A.GAP)
    assert queue.states == [
        (0, 1, RecordState.ACQUIRED, 1),
        (1, 2, RecordState.ACKNOWLEDGED, 1),
        (2, 3, RecordState.AVAILABLE, 1),
        (3, 5, RecordState.ARCHIVED, 1),
        (5, 6, RecordState.ACQUIRED, 1),
    ]
    rejected = DeadLetter(
        offsets=offsets(3, 4), delivery_count=1, reason=DeadLetterReason.REJECTED, member_id=ADA
    )
    assert letters == (rejected,)


def test_one_bad_part_leaves_all_as_it_was() -> None:
    queue = Queue((0, 10))
    queue.acquire()
    queue.acknowledge(7, 8)
    before = queue.states
    with pytest.raises(NotAcquired) as caught:
        queue.acknowledge(5, 10)
    assert caught.value.offset == 7
    assert queue.states == before


def test_who_does_not_hold_a_record_cannot_acknowledge_it() -> None:
    queue = Queue((0, 10))
    queue.acquire(ADA)
    with pytest.raises(NotAcquired):
        queue.acknowledge(0, 10, member_id=BOB)
    queue.acknowledge(0, 10, member_id=ADA)
    assert queue.partition.start_offset == 10


def test_what_was_never_handed_out_cannot_be_acknowledged() -> None:
    queue = Queue((0, 10))
    queue.acquire()
    with pytest.raises(InvalidAcknowledgement):
        queue.acknowledge(5, 11)


def test_what_was_deleted_meanwhile_is_acknowledged_without_effect() -> None:
    queue = Queue((0, 10))
    queue.acquire()
    queue.partition.move_start_to(6)
    assert queue.acknowledge(0, 4) == ()
    queue.acknowledge(4, 8)
    assert queue.partition.start_offset == 8


def test_after_the_last_attempt_a_record_is_a_dead_letter() -> None:
    queue = Queue((0, 2), delivery_count_max=2)
    queue.acquire(ADA)
    assert queue.release(0, 2) == ()
    queue.acquire(BOB)
    letter = DeadLetter(
        offsets=offsets(0, 2),
        delivery_count=2,
        reason=DeadLetterReason.DELIVERIES_USED_UP,
        member_id=BOB,
    )
    assert queue.release(0, 2, member_id=BOB) == (letter,)
    assert queue.partition.start_offset == 2
    assert queue.acquire() == []


def test_the_limit_counts_as_it_is_when_the_attempt_ends() -> None:
    queue = Queue((0, 1))
    queue.acquire()
    queue.partition.terms = Queue(delivery_count_max=1).terms
    assert len(queue.release(0, 1)) == 1


def test_what_a_member_held_when_it_left_was_an_attempt() -> None:
    """So a record that takes its consumers down with it does not come for ever."""
    queue = Queue((0, 4), delivery_count_max=2)
    assert queue.acquire(ADA) == [(0, 4)]
    assert queue.give_back(ADA) == ()
    assert queue.states == [(0, 4, RecordState.AVAILABLE, 1)]
    queue.acquire(ADA)
    [letter] = queue.give_back(ADA)
    assert letter.reason is DeadLetterReason.DELIVERIES_USED_UP
    assert queue.partition.start_offset == 4


def test_giving_back_leaves_what_others_hold() -> None:
    queue = Queue((0, 2), (2, 4))
    queue.acquire(ADA, records_max=2)
    queue.acquire(BOB)
    queue.give_back(ADA)
    assert queue.states == [
        (0, 2, RecordState.AVAILABLE, 1),
        (2, 4, RecordState.ACQUIRED, 1),
    ]


def test_a_lock_runs_out_at_its_time_and_not_before() -> None:
    queue = Queue((0, 2))
    queue.acquire()
    queue.wait(LOCK_MS - 1)
    assert queue.partition.deadline_ms == LOCK_MS
    assert queue.acquire(BOB) == []
    queue.wait(1)
    assert queue.acquire(BOB) == [(0, 2)]
    with pytest.raises(NotAcquired):
        queue.acknowledge(0, 2, member_id=ADA)


def test_a_renewed_lock_starts_over() -> None:
    queue = Queue((0, 4))
    queue.acquire()
    queue.wait(LOCK_MS // 2)
    queue.acknowledge(0, 2, A.RENEW)
    queue.wait(LOCK_MS // 2)
    assert queue.acquire(BOB) == [(2, 4)]
    queue.wait(LOCK_MS // 2)
    assert queue.partition.next_fetch_offset == 0
    assert queue.states[0][2:] == (RecordState.AVAILABLE, 1)


def test_who_renews_for_ever_fills_no_memory_and_loses_the_lock_when_it_stops() -> None:
    queue = Queue((0, 1))
    queue.acquire()
    for _ in range(3 * ENTRIES_MIN):
        queue.wait(1)
        queue.acknowledge(0, 1, A.RENEW)
    assert len(queue.partition._locks) <= ENTRIES_MIN
    queue.wait(LOCK_MS - 1)
    assert queue.acquire(BOB) == []
    queue.wait(1)
    assert queue.acquire(BOB) == [(0, 1)]


def test_a_lock_that_runs_out_for_the_last_time_is_a_dead_letter() -> None:
    queue = Queue((0, 1), delivery_count_max=1)
    queue.acquire()
    (letter,) = queue.wait(LOCK_MS)
    assert (letter.reason, letter.member_id) == (DeadLetterReason.DELIVERIES_USED_UP, ADA)


def test_nothing_is_due_once_all_is_done() -> None:
    queue = Queue((0, 4))
    queue.acquire()
    queue.acknowledge(0, 4)
    assert queue.partition.deadline_ms is None


def test_when_the_log_begins_after_all_that_is_in_flight_that_is_where_it_goes_on() -> None:
    queue = Queue((0, 4), (20, 24))
    queue.acquire(records_max=4)
    queue.partition.move_start_to(20)
    assert queue.partition.next_fetch_offset == 20
    assert queue.acquire(BOB) == [(20, 24)]


def test_the_start_does_not_go_back() -> None:
    queue = Queue((0, 4))
    queue.acquire()
    queue.acknowledge(0, 3)
    queue.partition.move_start_to(1)
    assert queue.partition.start_offset == 3


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([(5, 4, [1])], "there are no such offsets"),
        ([(-1, 4, [1])], "there are no such offsets"),
        ([(0, 4, [])], "it has no type"),
        ([(0, 4, [1, 1])], "2 types for 5 offsets"),
        ([(0, 4, [4])], "a renewal in a request that does not say that it renews"),
        ([(0, 4, [1]), (4, 8, [1])], "it does not follow on [0, 5)"),
        ([(5, 9, [1]), (0, 4, [1])], "it does not follow on [5, 10)"),
    ],
)
def test_an_acknowledgement_that_makes_no_sense_says_why(
    batches: list[tuple[int, int, list[int]]], reason: str
) -> None:
    with pytest.raises(InvalidAcknowledgement) as caught:
        check_acknowledgements((acknowledgement_of(*one) for one in batches), may_renew=False)
    assert caught.value.reason == reason


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InvalidAcknowledgement):
        acknowledgement_of(0, 4, [5])


def test_acknowledgements_in_order_are_fine() -> None:
    batches = [acknowledgement_of(0, 4, [4]), acknowledgement_of(5, 6, [1, 2])]
    check_acknowledgements(batches, may_renew=True)
    assert batches[0] == Acknowledgement(offsets=offsets(0, 5), types=(A.RENEW,))
