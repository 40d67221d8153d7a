"""A device's clock, learned from its messages: against known true times."""

from dataclasses import dataclass
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.processing.operators.device_clock import (
    ESTIMATES_MAX,
    Corrected,
    DeviceClock,
    clock_from,
)

UNHURRIED = settings(deadline=None)
DELAY_MAX = 1000


@dataclass(frozen=True)
class Message:
    """True times, by the server's clock; the device's is `offset` behind."""

    happened: int
    kept_back: int
    delay: int
    offset: int

    @property
    def event(self) -> int:
        return self.happened - self.offset

    @property
    def sent(self) -> int:
        return self.event + self.kept_back

    @property
    def received(self) -> int:
        return self.happened + self.kept_back + self.delay


MESSAGES = st.builds(
    lambda offset, sent: sorted(
        (Message(happened, kept_back, delay, offset) for happened, kept_back, delay in sent),
        key=lambda message: message.received,
    ),
    st.integers(-(10**6), 10**6),
    st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 2000), st.integers(0, DELAY_MAX)),
        min_size=1,
        max_size=20,
    ),
)


def corrected(messages: list[Message], clock: DeviceClock | None = None) -> list[Corrected]:
    clock = clock or DeviceClock(DELAY_MAX)
    return [
        clock.correct(message.event, sent=message.sent, received=message.received)
        for message in messages
    ]


@UNHURRIED
@given(MESSAGES)
def test_the_true_time_is_within_the_uncertainty_before_the_corrected_one(
    messages: list[Message],
) -> None:
    for message, (at, uncertainty, restarts) in zip(messages, corrected(messages), strict=True):
        assert at - uncertainty <= message.happened <= at
        assert restarts == 0


@UNHURRIED
@given(MESSAGES)
def test_events_of_a_device_keep_their_order(messages: list[Message]) -> None:
    both = zip(messages, corrected(messages), strict=True)
    for (one, one_corrected), (other, other_corrected) in combinations(both, 2):
        if one.event <= other.event:
            assert one_corrected.at <= other_corrected.at
        if one.event >= other.event:
            assert one_corrected.at >= other_corrected.at


@UNHURRIED
@given(MESSAGES, st.integers(0, 3000), st.integers(0, 2000), st.integers(0, DELAY_MAX))
def test_a_message_without_a_time_of_sending_has_the_time_received_with_its_bound(
    messages: list[Message], happened: int, kept_back: int, delay: int
) -> None:
    clock = DeviceClock(DELAY_MAX)
    corrected(messages, clock)
    known = clock.to_plain()
    lost = Message(happened, kept_back, delay, messages[0].offset)
    at, uncertainty, restarts = clock.of_received(lost.event, lost.received)
    assert (at, restarts) == (lost.received, 0)
    assert at - uncertainty <= lost.happened <= at
    assert clock.to_plain() == known, "it teaches nothing"


def test_of_a_clock_that_is_not_known_the_longest_delay_is_the_uncertainty() -> None:
    for event in (None, 5):
        assert DeviceClock(DELAY_MAX).of_received(event, 70) == (70, DELAY_MAX, 0)
    clock = DeviceClock(DELAY_MAX)
    clock.correct(0, sent=0, received=10)
    assert clock.of_received(None, 70) == (70, DELAY_MAX, 0)
    assert clock.of_received(10**9, 70) == (70, DELAY_MAX, 0), "its clock was set since"


@UNHURRIED
@given(MESSAGES, st.integers(0, 20))
def test_a_clock_that_was_written_down_goes_on_as_before(messages: list[Message], cut: int) -> None:
    clock = DeviceClock(DELAY_MAX)
    first = corrected(messages[:cut], clock)
    restored = clock_from(clock.to_plain(), delay_max=DELAY_MAX)
    assert first + corrected(messages[cut:], restored) == corrected(messages)


def test_the_naive_formula_reorders_a_devices_events_and_this_does_not() -> None:
    slow, quick = Message(0, 0, 900, offset=50), Message(100, 0, 10, offset=50)
    naive = {m: m.event + (m.received - m.sent) for m in (slow, quick)}
    assert naive[slow] > naive[quick]
    at_quick, at_slow = corrected([quick, slow])
    assert (at_slow.at, at_quick.at) == (10, 110)


def test_the_quickest_message_so_far_tells_the_offset() -> None:
    messages = [
        Message(at, 0, delay, offset=-7) for at, delay in ((0, 400), (5000, 30), (9000, 90))
    ]
    assert [at for at, _uncertainty, _restarts in corrected(messages)] == [400, 5030, 9030]


def test_what_was_seen_of_slow_messages_narrows_the_uncertainty() -> None:
    messages = [Message(at, 0, delay, offset=0) for at, delay in ((0, 0), (5000, 800), (9000, 0))]
    assert [one.uncertainty for one in corrected(messages)] == [1000, 200, 200]


def test_an_event_is_not_put_before_an_older_one_that_an_earlier_estimate_moved() -> None:
    """The second would be at 110 by the better estimate; the first one was put at 500."""
    first, second = Message(0, 0, 500, offset=0), Message(100, 600, 10, offset=0)
    assert [one.at for one in corrected([first, second])] == [500, 500]
    later = Message(2000, 0, 10, offset=0)
    assert corrected([first, second, later])[-1].at == 2010


def test_a_clock_that_is_set_anew_is_found_and_learned_again() -> None:
    before = [Message(at, 0, 10, offset=0) for at in (0, 5000)]
    for jump in (-3_600_000, 3_600_000):
        after = [Message(at, 0, 20, offset=jump) for at in (9000, 9500)]
        told = corrected([*before, *after])
        assert [one.at for one in told] == [10, 5010, 9020, 9520]
        assert [one.restarts for one in told] == [0, 0, 1, 1]


def test_differences_up_to_the_longest_delay_are_no_new_clock() -> None:
    quick, slow = Message(0, 0, 0, offset=0), Message(5000, 0, DELAY_MAX, offset=0)
    assert corrected([quick, slow])[-1].restarts == 0
    too_slow = Message(5000, 0, DELAY_MAX + 1, offset=0)
    assert corrected([quick, too_slow])[-1].restarts == 1


@UNHURRIED
@given(st.integers(-200, 200), st.lists(st.integers(0, DELAY_MAX), min_size=1, max_size=60))
def test_a_drifting_clock_is_never_off_by_more_than_the_longest_delay(
    drift: int, delays: list[int]
) -> None:
    clock = DeviceClock(DELAY_MAX)
    for number, delay in enumerate(delays):
        message = Message(number * 10_000, 0, delay, offset=number * drift)
        clock.correct(message.event, sent=message.sent, received=message.received)
        assert clock.least is not None
        assert abs(clock.least - message.offset) <= DELAY_MAX


def test_the_estimates_that_are_remembered_have_a_limit() -> None:
    clock = DeviceClock(DELAY_MAX)
    for number in range(ESTIMATES_MAX + 1):
        clock.correct(number * 10, sent=number * 10, received=number * 10 - number)
        assert len(clock.estimates) == min(number + 1, ESTIMATES_MAX)
