"""A device's clock against the server's, from when messages were sent and received. Pure.

Each message tells received - sent: how far the server's clock is ahead of the device's (the
offset), plus what the message took. The least of them so far is the best estimate of the offset:
too great by what the quickest message took, and never too small. Times are microseconds.

The bounds. A message takes from 0 to `delay_max`. So the offset is at most the least difference
seen, and at least the greatest one seen less `delay_max`; and a true time is within that interval,
moved by the event's own. A corrected time lies at its end or, to keep the order, after it: the
uncertainty is the distance to its beginning, so the error is never greater.

The order. An estimate only falls, so that an event could be put before an older one that was
corrected by a greater estimate. It is not: up to the last event that an estimate was used for, it
stays in force, and what comes after that is not put before it. Events of a device that were in
order by its clock stay so (or become equal), whatever order they arrive in.

A clock that is set anew shows differences that no delay within `delay_max` explains: what was known
is forgotten, and its restarts are counted. A clock that drifts is followed down at once, and up
when the drift comes to `delay_max`, by a restart: the estimate in force is never off by more than
`delay_max` at the moment of sending, though for a drifting clock the uncertainty may say less.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Record lows come ever more rarely, by 1/n for equal delays: 100 of them are e^100 messages. A
# drifting clock makes more. Beyond, the oldest goes: order is then not promised to events from
# before it that are still to arrive.
ESTIMATES_MAX = 100


class Corrected(NamedTuple):
    """`at` is by the server's clock; the true time is between `at - uncertainty` and `at`."""

    at: int
    uncertainty: int
    restarts: int


@dataclass(slots=True)
class DeviceClock:
    """What messages, in order of arrival, have told of one device's clock.

    `estimates` are those of the offset since its last start, falling, each with the latest event
    that it was used for; the last one is in force.
    """

    delay_max: int
    least: int | None = None
    greatest: int = 0
    restarts: int = 0
    estimates: list[tuple[int, int]] = field(default_factory=list)

    def correct(self, event: int, *, sent: int, received: int) -> Corrected:
        self._learn(received - sent, event)
        at = max(min(event, until) + offset for until, offset in self.estimates)
        return Corrected(at, at - event - (self.greatest - self.delay_max), self.restarts)

    def of_received(self, event: int | None, received: int) -> Corrected:
        """Of a message that does not say when it was sent: at the latest when it was received.

        It teaches nothing. If the clock is known, the event was not before its earliest true time;
        if not, it is taken to be sent when it happened.
        """
        if self.least is None or event is None:
            return Corrected(received, self.delay_max, self.restarts)
        earliest = event + self.greatest - self.delay_max
        # An earliest time after the time received is of a clock that was set meanwhile.
        uncertainty = received - earliest if earliest <= received else self.delay_max
        return Corrected(received, uncertainty, self.restarts)

    def to_plain(self) -> tuple[Any, ...]:
        return self.least, self.greatest, self.restarts, self.estimates

    def _learn(self, difference: int, event: int) -> None:
        if self.least is None:
            self._start(difference, event)
            return
        greatest, least = max(self.greatest, difference), min(self.least, difference)
        if greatest - least > self.delay_max:
            self.restarts += 1
            self._start(difference, event)
            return
        if least < self.least:
            self.estimates = [*self.estimates, (event, least)][-ESTIMATES_MAX:]
        until, offset = self.estimates[-1]
        self.estimates[-1] = (max(until, event), offset)
        self.greatest, self.least = greatest, least

    def _start(self, difference: int, event: int) -> None:
        self.greatest = self.least = difference
        self.estimates = [(event, difference)]


def clock_from(plain: tuple[Any, ...] | None, *, delay_max: int) -> DeviceClock:
    return DeviceClock(delay_max, *(plain or ()))
