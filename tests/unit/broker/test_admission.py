"""Places for connections, and how often those who get none are written about."""

import pytest

from millstream.broker.admission import Admission, NoRoom
from millstream.broker.complaints import LINE_INTERVAL_MS, REMEMBERED_MAX, Complaints


def test_one_connection_too_many_has_no_room_until_one_leaves() -> None:
    admission = Admission(connections_max=2, per_address_max=10)
    first, _ = admission.enter("a"), admission.enter("b")
    with pytest.raises(NoRoom, match="connections_max"):
        admission.enter("c")
    first.leave()
    admission.enter("c")
    assert admission.refused == 1


def test_one_address_too_often_does_not_keep_out_another() -> None:
    admission = Admission(connections_max=10, per_address_max=1)
    place = admission.enter("a")
    with pytest.raises(NoRoom, match="connections_per_address_max"):
        admission.enter("a")
    admission.enter("b")
    place.leave()
    admission.enter("a")


def test_a_place_is_given_back_once() -> None:
    admission = Admission(connections_max=2, per_address_max=1)
    place = admission.enter("a")
    place.leave()
    place.leave()
    admission.enter("a")
    with pytest.raises(NoRoom):
        admission.enter("a")


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_the_same_complaint_is_written_once_a_minute_with_a_count() -> None:
    clock = Clock()
    complaints = Complaints(now_ms=clock)
    assert complaints.about("a", "too loud") == "too loud"
    assert [complaints.about("a", "too loud") for _ in range(3)] == [None] * 3
    assert complaints.about("a", "too slow") == "too slow"
    assert complaints.about("b", "too loud") == "too loud"
    clock.now_ms += LINE_INTERVAL_MS
    assert complaints.about("a", "too loud") == "too loud (3 more times from a)"
    assert complaints.about("a", "too loud") is None


def test_strangers_do_not_fill_the_memory() -> None:
    complaints = Complaints(now_ms=Clock())
    for number in range(REMEMBERED_MAX + 1):
        complaints.about(str(number), "too loud")
    assert complaints.about("0", "too loud") is not None, "the oldest is forgotten"
    assert complaints.about(str(REMEMBERED_MAX), "too loud") is None
