import pytest

from millstream.base.record import Record
from millstream.queues.acknowledgements import Partition, Place, Settlement
from millstream.queues.deliveries import Delivery
from millstream.queues.held_jobs import PUT_OFF_MAX, HeldJobs, TooManyPutOff

HERE, THERE = Partition(b"h" * 16, 0), Partition(b"t" * 16, 0)
JOB = Place(HERE, 7)
LOCK_MS = 30_000


def delivery(place: Place = JOB) -> Delivery:
    return Delivery(place=place, count=1, record=Record())


def holding(*places: Place, taken: bool = True) -> HeldJobs:
    held = HeldJobs()
    deliveries = [delivery(place) for place in places]
    held.hold(deliveries, now_ms=0, lock_ms=LOCK_MS)
    for one in deliveries if taken else ():
        held.take(one)
    return held


def test_a_lock_belongs_to_one_delivery_and_not_to_an_older_one_of_the_job() -> None:
    """It was lost, and the same worker got the job again: the first thread must not settle it."""
    held, older, newer = HeldJobs(), delivery(), delivery()
    held.hold([older], now_ms=0, lock_ms=LOCK_MS)
    held.lose([HERE])
    held.hold([newer], now_ms=0, lock_ms=LOCK_MS)
    assert newer in held
    assert older not in held
    assert not held.take(older)


def test_a_job_is_renewed_when_a_third_of_its_lock_is_over() -> None:
    held = holding(JOB)
    assert held.next_due_ms([HERE]) == LOCK_MS // 3
    assert held.due([HERE], now_ms=LOCK_MS // 3 - 1) == {}
    assert held.due([HERE], now_ms=LOCK_MS // 3) == {JOB: Settlement.RENEW}


def test_a_renewed_lock_is_due_again_a_third_later() -> None:
    held = holding(JOB)
    held.renew([JOB], now_ms=10_000, lock_ms=LOCK_MS)
    assert held.next_due_ms([HERE]) == 20_000


def test_a_job_that_nobody_has_taken_goes_back_instead() -> None:
    held = holding(JOB, taken=False)
    assert held.due([HERE], now_ms=LOCK_MS // 3) == {JOB: Settlement.RELEASE}


def test_a_job_that_is_put_off_is_renewed_until_its_time_and_then_released() -> None:
    held = holding(JOB)
    held.put_off(JOB, until_ms=25_000)
    assert held.due([HERE], now_ms=10_000) == {JOB: Settlement.RENEW}
    held.renew([JOB], now_ms=10_000, lock_ms=LOCK_MS)
    held.renew([JOB], now_ms=20_000, lock_ms=LOCK_MS)
    assert held.next_due_ms([HERE]) == 25_000
    assert held.due([HERE], now_ms=24_999) == {}
    assert held.due([HERE], now_ms=25_000) == {JOB: Settlement.RELEASE}


def test_only_so_many_jobs_are_put_off() -> None:
    places = [Place(HERE, offset) for offset in range(PUT_OFF_MAX + 1)]
    held = holding(*places)
    for place in places[:-1]:
        held.put_off(place, until_ms=1_000)
    with pytest.raises(TooManyPutOff):
        held.put_off(places[-1], until_ms=1_000)


def test_a_settled_job_is_not_renewed() -> None:
    held = holding(JOB)
    held.drop(JOB)
    assert held.due([HERE], now_ms=LOCK_MS) == {}
    assert held.next_due_ms([HERE]) is None
    assert not held.has(JOB)


def test_a_lost_session_loses_the_locks_of_its_partitions_only() -> None:
    other = Place(THERE, 7)
    held = holding(JOB, other)
    assert held.lose([HERE]) == (JOB,)
    assert not held.has(JOB)
    assert held.has(other)


def test_the_locks_of_another_leader_are_not_this_one_s_to_renew() -> None:
    held = holding(JOB)
    assert held.due([THERE], now_ms=LOCK_MS) == {}
    assert held.next_due_ms([THERE]) is None
