"""What is counted on the way of a request, and has no better home: plain integers, no more.

Other numbers are kept by those who do the work (`GroupCommit.counts`, `Compactor.totals`) or need
no counter at all: they are read from the state when somebody asks.
"""

from collections import Counter
from dataclasses import dataclass, field

from millstream.broker.metrics.answer_errors import errors_in
from millstream.broker.metrics.histogram import SECONDS_BOUNDS, Histogram
from millstream.broker.wire import Message


class ApiCounts:
    """The requests of one API. Owned by the broker's loop."""

    __slots__ = ("errors", "request_bytes", "requests", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.seconds = Histogram(SECONDS_BOUNDS)
        # By error code: how often an answer, or one item of it, carried it.
        self.errors: Counter[int] = Counter()

    def note_request(self, size_bytes: int) -> None:
        self.requests += 1
        self.request_bytes += size_bytes

    def note_answer(self, response: Message, *, size_bytes: int, seconds: float) -> None:
        self.response_bytes += size_bytes
        self.seconds.observe(seconds)
        if errors := errors_in(response):
            self.errors.update(errors)


class _ByApi(dict[int, ApiCounts]):
    """The counts of each API that was asked; made when it is asked for the first time."""

    def __missing__(self, api_key: int) -> ApiCounts:
        counts = self[api_key] = ApiCounts()
        return counts


@dataclass(slots=True)
class BrokerCounts:
    """Since the start of the broker. Owned by its loop."""

    apis: dict[int, ApiCounts] = field(default_factory=_ByApi)
    connections_accepted: int = 0
    # Ended by us: malformed or too large requests, an API that is not offered.
    connections_rejected: int = 0
    connections_idle_closed: int = 0
    # How late the loop came to what was due, looked at while metrics are served.
    loop_delays: Histogram = field(default_factory=lambda: Histogram(SECONDS_BOUNDS))
    retention_segments: int = 0
    retention_bytes: int = 0
