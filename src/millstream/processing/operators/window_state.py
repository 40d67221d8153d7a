"""The windows of one key: what events do to them, and when they are over. Pure.

State is plain values (it is kept in Spark's checkpoint: docs/formats/window_state.md), and so are
results. Adding events tells, for each window that they touch, the result before and after; how
that is told on (an upsert, a retraction, only the last one) is `window_changes.py`'s business.
A window takes events until it is over: until the watermark has reached its end, which is not in
it, or has passed the last time that is in it. Then its state goes. What is late for every operator
of a job does not get here (`lateness.py`); an event may be here for some of its windows only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from millstream.processing.operators.aggregates import (
    Aggregate,
    Partials,
    lift_all,
    merge_all,
    results_of,
)
from millstream.processing.operators.window_kinds import Hopping, Session, Sliding, WindowKind

# Its time, and a value for each aggregate.
Event: TypeAlias = tuple[int, Sequence[Any]]
TIME = itemgetter(0)
# Before all times that Spark knows: nothing is over.
NO_WATERMARK = -(1 << 63)


class Result(NamedTuple):
    """The row of one window. Windows of one key differ in their start."""

    start: int
    end: int
    values: tuple[Any, ...]


class Revision(NamedTuple):
    before: Result | None
    after: Result | None


class Windows(Protocol):
    """One kind of windows. `state` belongs to the caller; it is changed in place."""

    @property
    def kind(self) -> WindowKind: ...

    @property
    def aggregates(self) -> Sequence[Aggregate]: ...

    def empty(self) -> Any: ...

    def add(
        self, state: Any, events: Sequence[Event], watermark: int = NO_WATERMARK
    ) -> list[Revision]:
        """What changed, in order of start; windows whose result is as before are left out, and
        windows that are over stay as they are."""
        ...

    def close(self, state: Any, watermark: int) -> list[Result]:
        """Drop what no event can change any more; the last results of the windows now over."""
        ...

    def next_close(self, state: Any) -> int | None:
        """The watermark at which there is something to close; None when nothing is kept."""
        ...


def windows_of(
    kind: WindowKind, aggregates: Sequence[Aggregate], *, tells_last: bool = False
) -> Windows:
    match kind:
        case Hopping():
            return HoppingWindows(kind, tuple(aggregates))
        case Session():
            return SessionWindows(kind, tuple(aggregates), tells_last)
        case Sliding():
            return SlidingWindows(kind, tuple(aggregates), tells_last)


@dataclass(frozen=True, slots=True)
class HoppingWindows:
    """State: the partials of each window, by its start."""

    kind: Hopping
    aggregates: tuple[Aggregate, ...]

    def empty(self) -> dict[int, Partials]:
        return {}

    def add(
        self,
        state: dict[int, Partials],
        events: Sequence[Event],
        watermark: int = NO_WATERMARK,
    ) -> list[Revision]:
        touched: dict[int, Partials | None] = {}
        for at, values in events:
            lifted = lift_all(self.aggregates, at, values)
            for start in self.kind.starts_of(at):
                if start + self.kind.size_us <= watermark:
                    break  # latest first: those that follow are over, too
                known = state.get(start)
                touched.setdefault(start, known)
                state[start] = lifted if known is None else self._merge(known, lifted)
        return changed_only(
            Revision(self._result(start, before), self._result(start, state[start]))
            for start, before in sorted(touched.items(), key=TIME)
        )

    def close(self, state: dict[int, Partials], watermark: int) -> list[Result]:
        over = sorted(start for start in state if start + self.kind.size_us <= watermark)
        return [self._known_result(start, state.pop(start)) for start in over]

    def next_close(self, state: dict[int, Partials]) -> int | None:
        return min(state) + self.kind.size_us if state else None

    def _merge(self, left: Partials, right: Partials) -> Partials:
        return merge_all(self.aggregates, left, right)

    def _result(self, start: int, partials: Partials | None) -> Result | None:
        return None if partials is None else self._known_result(start, partials)

    def _known_result(self, start: int, partials: Partials) -> Result:
        values = results_of(self.aggregates, partials)
        return Result(start, start + self.kind.size_us, values)


class OpenSession(NamedTuple):
    first: int
    last: int
    partials: Partials


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """State: the sessions in order of time; between two of them is more than the gap.

    An event is taken while a session of it alone would be open. Such an event can still join a
    session that ended less than a gap ago: so a session is kept for that long, unless `tells_last`,
    where it is final by then.
    """

    kind: Session
    aggregates: tuple[Aggregate, ...]
    tells_last: bool = False

    @property
    def _kept_us(self) -> int:
        """How long a session is kept after its last event."""
        return self.kind.gap_us if self.tells_last else 2 * self.kind.gap_us

    def empty(self) -> list[tuple[Any, ...]]:
        return []

    def add(
        self,
        state: list[tuple[Any, ...]],
        events: Sequence[Event],
        watermark: int = NO_WATERMARK,
    ) -> list[Revision]:
        """An event between two sessions makes them one: the later one is then no more."""
        touched: dict[int, OpenSession | None] = {}
        taken = (event for event in events if event[0] + self.kind.gap_us > watermark)
        for at, values in taken:
            alone = OpenSession(at, at, lift_all(self.aggregates, at, values))
            place, near = self._near(state, at)
            joined = self._joined([*near, alone])
            touched.update({one.first: one for one in near if one.first not in touched})
            touched.setdefault(joined.first, None)
            state[place : place + len(near)] = [tuple(joined)]  # plain, as it is kept
        kept = {session[0]: OpenSession(*session) for session in state if session[0] in touched}
        return changed_only(
            Revision(self._result(before), self._result(kept.get(first)))
            for first, before in sorted(touched.items(), key=TIME)
        )

    def close(self, state: list[tuple[Any, ...]], watermark: int) -> list[Result]:
        over = bisect_right(state, watermark - self._kept_us, key=itemgetter(1))
        closed = [self._known_result(OpenSession(*session)) for session in state[:over]]
        del state[:over]
        return closed

    def next_close(self, state: list[tuple[Any, ...]]) -> int | None:
        return OpenSession(*state[0]).last + self._kept_us if state else None

    def _near(self, state: list[tuple[Any, ...]], at: int) -> tuple[int, list[OpenSession]]:
        """The sessions that an event at `at` belongs to, and the place of the first one."""
        end = bisect_right(state, at + self.kind.gap_us, key=TIME)
        place = end
        while place and OpenSession(*state[place - 1]).last >= at - self.kind.gap_us:
            place -= 1
        return place, [OpenSession(*session) for session in state[place:end]]

    def _joined(self, sessions: list[OpenSession]) -> OpenSession:
        joined = sessions[0]
        for one in sessions[1:]:
            partials = merge_all(self.aggregates, joined.partials, one.partials)
            joined = OpenSession(min(joined.first, one.first), max(joined.last, one.last), partials)
        return joined

    def _result(self, session: OpenSession | None) -> Result | None:
        return None if session is None else self._known_result(session)

    def _known_result(self, session: OpenSession) -> Result:
        values = results_of(self.aggregates, session.partials)
        return Result(session.first, session.last + self.kind.gap_us, values)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """A row for each time at which there are events: those of one time share their window, which
    ends with that time and includes it. So it is over when the watermark is after that time.

    State: how far rows are over, and the events that a later row may look back on, by time.
    Without `tells_last`, `close` tells no rows, and is asked for only to drop events.
    """

    kind: Sliding
    aggregates: tuple[Aggregate, ...]
    tells_last: bool

    def empty(self) -> list[Any]:
        return [NO_WATERMARK, []]

    def add(
        self, state: list[Any], events: Sequence[Event], watermark: int = NO_WATERMARK
    ) -> list[Revision]:
        """A late event also revises the rows of those after it, as far as they look back and are
        not over."""
        known: list[tuple[int, Partials]] = state[1]
        new = [
            (at, lift_all(self.aggregates, at, values))
            for at, values in events
            if at + self.kind.size_us > watermark
        ]
        if not new:
            return []
        now = sorted([*known, *new], key=TIME)
        looking_back = self._looking_back_on({at for at, _partials in new}, now)
        revised = [at for at in looking_back if at >= watermark]
        before, after = self._rows(known, revised), self._rows(now, revised)
        state[1] = now
        return changed_only(Revision(before.get(at), after[at]) for at in revised)

    def close(self, state: list[Any], watermark: int) -> list[Result]:
        closed_until, events = state
        until = watermark - 1  # the last time whose row is over
        over = sorted({at for at, _partials in events if closed_until < at <= until})
        rows = self._rows(events, over) if self.tells_last else {}
        kept = bisect_right(events, watermark - self.kind.size_us, key=TIME)
        state[:] = [max(closed_until, until), events[kept:]]
        return [*rows.values()]

    def next_close(self, state: list[Any]) -> int | None:
        times: list[int] = [at for at, _partials in state[1]]
        if not times:
            return None
        dropped = times[0] + self.kind.size_us
        first_open = bisect_right(times, state[0])
        if not self.tells_last or first_open == len(times):
            return dropped
        return min(dropped, times[first_open] + 1)

    def _looking_back_on(self, new: set[int], now: list[tuple[int, Partials]]) -> list[int]:
        """The times of rows whose window has one of the `new` times in it."""
        ordered = sorted(new)
        return [
            at
            for at, _events in groupby(now[bisect_left(now, ordered[0], key=TIME) :], key=TIME)
            if bisect_right(ordered, at) > bisect_right(ordered, at - self.kind.size_us)
        ]

    def _rows(self, events: list[tuple[int, Partials]], times: Sequence[int]) -> dict[int, Result]:
        """The rows at these times, which rise. Each event is merged a few times at most."""
        if not times:
            return {}
        wanted = set(times)
        queue = MergingQueue(self.aggregates)
        rows = {}
        first = bisect_right(events, times[0] - self.kind.size_us, key=TIME)
        last = bisect_right(events, times[-1], key=TIME)
        for at, together in groupby(events[first:last], key=TIME):
            for event in together:
                queue.push(event)
            queue.drop_until(at - self.kind.size_us)
            if at in wanted:
                values = results_of(self.aggregates, queue.merged())
                rows[at] = Result(at - self.kind.size_us, at, values)
        return rows


class MergingQueue:
    """Events in order of time, and the merge of all that are in it: old ones leave at the front.

    Two stacks, since a merge cannot be undone: the front one holds, for each event, the merge of it
    and all after it there; when it is empty, the back one is turned over onto it.
    """

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = aggregates
        self._front: list[tuple[int, Partials]] = []
        self._back: list[tuple[int, Partials]] = []
        self._back_merged: Partials = (None,) * len(aggregates)

    def push(self, event: tuple[int, Partials]) -> None:
        self._back.append(event)
        self._back_merged = merge_all(self._aggregates, self._back_merged, event[1])

    def drop_until(self, at: int) -> None:
        while self._oldest() <= at:
            if not self._front:
                self._turn_over()
            self._front.pop()

    def merged(self) -> Partials:
        if not self._front:
            return self._back_merged
        return merge_all(self._aggregates, self._front[-1][1], self._back_merged)

    def _oldest(self) -> int:
        """Never asked of an empty queue: the event that is being looked at is in it."""
        return self._front[-1][0] if self._front else self._back[0][0]

    def _turn_over(self) -> None:
        merged: Partials = (None,) * len(self._aggregates)
        for at, partials in reversed(self._back):
            merged = merge_all(self._aggregates, partials, merged)
            self._front.append((at, merged))
        self._back.clear()
        self._back_merged = (None,) * len(self._aggregates)


def changed_only(revisions: Iterable[Revision]) -> list[Revision]:
    return [revision for revision in revisions if revision.before != revision.after]
