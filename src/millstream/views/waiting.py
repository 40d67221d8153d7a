"""Waits until a view has passed what an application wrote, so that it reads its own writes.

A receipt says where a record is in its topic; a view says which offset of each partition its job
reads next. The record counts in the view once that is greater. The rows are read in the same
moment as the position.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from millstream.base.errors import Rejected, Retryable
from millstream.base.ports import Positions
from millstream.views.store import BadQuestion, ViewNotFound, ViewReads

Found = TypeVar("Found")

WAIT_SECONDS = 10.0
# A look costs some 50 µs in SQLite. A batch takes 100 ms and more: looks grow apart until they
# cost next to nothing, and never hold an answer up by much.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.001, 0.020
PAUSE_GROWTH = 1.5


class WrittenAt(Protocol):
    """Where a record is: what `app.publish` returns."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


After = WrittenAt | Iterable[WrittenAt] | None


class NotFreshYet(Retryable):
    """`behind` is what the view has still to pass, `positions` where it is."""

    def __init__(
        self, *, view: str, behind: Positions, positions: Positions | None, waited: float, job: str
    ) -> None:
        missing = ", ".join(_told(view, at, positions) for at in partitions_of(behind))
        super().__init__(f"view {view} is not that fresh after {waited:g} s: {missing}. {job}")
        self.view, self.behind, self.positions = view, behind, positions
        self.waited = waited


class NotReadByView(Rejected):
    def __init__(self, *, view: str, topic: str, topics: Iterable[str]) -> None:
        known = ", ".join(sorted(topics))
        super().__init__(
            f"view {view} is not made from topic {topic} (but from {known}): it will never pass a "
            "record of it"
        )
        self.view, self.topic = view, topic


def wanted_positions(after: After) -> Positions:
    """Where a view must be to have passed all of these."""
    wanted: dict[str, dict[int, int]] = {}
    for receipt in _receipts(after):
        offsets = wanted.setdefault(receipt.topic, {})
        offsets[receipt.partition] = max(offsets.get(receipt.partition, 0), receipt.offset + 1)
    return wanted


def _receipts(after: After) -> list[WrittenAt]:
    if after is None:
        return []
    found: list[Any] = list(after) if isinstance(after, Iterable) else [after]
    for one in found:
        if not all(hasattr(one, fact) for fact in ("topic", "partition", "offset")):
            raise BadQuestion(f"after={one!r}: give what app.publish returned, or a list of it")
    return found


def behind(wanted: Positions, positions: Positions) -> Positions:
    """Those of `wanted` that are not reached."""
    left: dict[str, dict[int, int]] = {}
    for topic, partition, offset in partitions_of(wanted):
        if positions.get(topic, {}).get(partition, 0) < offset:
            left.setdefault(topic, {})[partition] = offset
    return left


def partitions_of(positions: Positions) -> Iterator[tuple[str, int, int]]:
    for topic, offsets in positions.items():
        for partition, offset in offsets.items():
            yield topic, partition, offset


def require_read(view: str, wanted: Positions, positions: Positions) -> None:
    """A view names every topic that its job reads with its first batch."""
    for topic in wanted:
        if positions and topic not in positions:
            raise NotReadByView(view=view, topic=topic, topics=positions)


def pauses() -> Iterator[float]:
    seconds = PAUSE_SECONDS_MIN
    while True:
        yield seconds
        seconds = min(seconds * PAUSE_GROWTH, PAUSE_SECONDS_MAX)


class Fresh:
    """Asks a view once it has passed what is wanted. `job` says how its job is, for a message."""

    def __init__(
        self,
        view: str,
        reads: ViewReads,
        *,
        job: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._view, self._reads, self._job = view, reads, job
        self._clock, self._pause = clock, pause

    def ask(
        self, question: Callable[[ViewReads], Found], *, wanted: Positions, timeout: float
    ) -> Found:
        deadline = self._clock() + timeout
        for seconds in pauses():
            positions, answer = self._look(question, wanted)
            if answer is not None:
                return answer[0]
            left = deadline - self._clock()
            if left <= 0:
                raise self._not_fresh(wanted, positions, timeout)
            self._pause(min(seconds, left))
        raise AssertionError("pauses do not end")

    def _look(
        self, question: Callable[[ViewReads], Found], wanted: Positions
    ) -> tuple[Positions | None, tuple[Found] | None]:
        """Where the view is, None if it is not there; and the answer, if that is far enough."""
        try:
            with moment_of(self._reads) as now:
                positions = now.position()
                require_read(self._view, wanted, positions)
                is_past = not behind(wanted, positions)
                return positions, (question(now),) if is_past else None
        except ViewNotFound:
            return None, None

    def _not_fresh(
        self, wanted: Positions, positions: Positions | None, waited: float
    ) -> NotFreshYet:
        return NotFreshYet(
            view=self._view,
            behind=behind(wanted, positions or {}),
            positions=positions,
            waited=waited,
            job=self._job(),
        )


def moment_of(reads: ViewReads) -> AbstractContextManager[ViewReads]:
    """One moment of the view, where its store has a way to say so; else what comes next, which is
    newer, unless the view is rolled back just then."""
    moment: Any = getattr(reads, "moment", None)
    return nullcontext(reads) if moment is None else moment()


def _told(view: str, at: tuple[str, int, int], positions: Positions | None) -> str:
    topic, partition, offset = at
    if positions is None:
        return f"the view is not there yet, and {topic}[{partition}] is asked to {offset}"
    offsets: Mapping[int, int] = positions.get(topic, {})
    return f"{topic}[{partition}] is read to {offsets.get(partition, 0)}, and asked to {offset}"
