"""Places for connections, and how often those who get none are written about."""

import pytest

from millstream.broker.access.admission import Admission, NoRoom
from millstream.broker.access.complaints import (
    LINE_INTERVAL_MS,
    LINES_OF_ADDRESS_MAX,
    REMEMBERED_MAX,
    Complaints,
)


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


def test_a_host_of_ipv6_is_one_address_whichever_it_takes_of_its_network() -> None:
    admission = Admission(connections_max=10, per_address_max=2)
    place, _ = admission.enter("2001:db8::1"), admission.enter("2001:db8::2")
    with pytest.raises(NoRoom, match="connections_per_address_max"):
        admission.enter("2001:db8::3")
    admission.enter("2001:db8:0:1::1")
    place.leave()
    admission.enter("2001:db8::3")


def test_a_place_is_given_back_once() -> None:
    admission = Admission(connections_max=2, per_address_max=1)
    place = admission.enter("a")
    place.leave()
    place.leave()
    admission.enter("a")
    with pytest.raises(NoRoom):
        admission.enter("a")


def test_those_without_a_login_hold_half_of_the_places_and_one_address_a_quarter() -> None:
    admission = Admission(connections_max=8, per_address_max=8, must_log_in=True)
    first, _ = admission.enter("a"), admission.enter("a")
    with pytest.raises(NoRoom, match=r"without a login.*a quarter"):
        admission.enter("a")
    for address in ("b", "c"):
        admission.enter(address)
    with pytest.raises(NoRoom, match=r"without a login.*half of"):
        admission.enter("d")
    first.settle()
    first.settle()
    admission.enter("d")
    with pytest.raises(NoRoom):
        admission.enter("e")


def test_one_that_goes_before_its_login_makes_room_for_another() -> None:
    admission = Admission(connections_max=4, per_address_max=4, must_log_in=True)
    for _ in range(10):
        admission.enter("a").leave()
    settled = admission.enter("a")
    settled.settle()
    settled.leave()
    admission.enter("a")


def test_where_nobody_logs_in_every_place_can_be_taken() -> None:
    admission = Admission(connections_max=4, per_address_max=4)
    for _ in range(4):
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


def test_an_address_with_many_reasons_has_so_many_lines_a_minute() -> None:
    clock = Clock()
    complaints = Complaints(now_ms=clock)
    said = [complaints.about("a", f"API {number}") for number in range(LINES_OF_ADDRESS_MAX + 5)]
    *written, last = said[:LINES_OF_ADDRESS_MAX]
    assert written == [f"API {number}" for number in range(LINES_OF_ADDRESS_MAX - 1)]
    assert last == f"API {LINES_OF_ADDRESS_MAX - 1}; no more lines about a for a minute"
    assert said[LINES_OF_ADDRESS_MAX:] == [None] * 5
    assert complaints.about("b", "API 1") == "API 1"
    clock.now_ms += LINE_INTERVAL_MS
    assert complaints.about("a", "something new") == "something new"


def test_strangers_do_not_fill_the_memory() -> None:
    complaints = Complaints(now_ms=Clock())
    for number in range(REMEMBERED_MAX + 1):
        complaints.about(str(number), "too loud")
    assert complaints.about("0", "too loud") is not None, "the oldest is forgotten"
    assert complaints.about(str(REMEMBERED_MAX), "too loud") is None
