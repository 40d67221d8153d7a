"""What a subscriber has applied is the view, whatever the batches, and wherever it was cut off.

The subscriber is moved by hand: no thread, no waiting. Its changes come from lists, in many
examples, and from SQLite's file, in fewer.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.quantity import HOUR_MS
from millstream.views.feed_changes import Change
from millstream.views.feed_follower import Follower, Slow, TooSlow, Wish
from millstream.views.feed_source import ChangeSource, Forgotten, Recent
from millstream.views.feeds import followed
from millstream.views.store import Row
from millstream.views.stores.sqlite.changes import SqliteChanges
from tests.support.listed_changes import ListedChanges
from tests.support.view_job import ViewJob

Counts = Mapping[str, int | None]
Where = Mapping[str, Any] | None
Steps = list[tuple[str, Any]]

WHERES: list[Where] = [None, {"count >=": 2}, {"url in": ["/", "/a"]}]
SLOW: list[Slow] = ["buffer", "latest", "disconnect"]
URL = st.sampled_from(["/", "/a", "/b", "/c"])
BATCH = st.dictionaries(URL, st.none() | st.integers(0, 3), min_size=1)
ACCIDENT = st.sampled_from(["start over", "rebuild", "trim"])


def rounds(accident: st.SearchStrategy[Any]) -> st.SearchStrategy[Steps]:
    """In each: some batches, a part of what they come to is taken, and the subscriber is cut off.
    Then and now something else befalls the view, or the subscriber has not looked."""
    puts = st.lists(st.tuples(st.just("batch"), BATCH), min_size=1, max_size=3)
    look = st.sampled_from(["look and take", "look and take", "take"])
    takes = st.tuples(look, st.integers(0, 4))
    cuts = st.sampled_from([[], [("cut", None)]])
    nothing: st.SearchStrategy[Steps] = st.just([])
    accidents = nothing | nothing | accident.map(lambda word: [(word, None)])
    one = st.tuples(accidents, puts, takes, cuts)
    return st.lists(one, min_size=2, max_size=6).map(
        lambda found: [
            step for befalls, put, take, cut in found for step in (*befalls, *put, take, *cut)
        ]
    )


class World(Protocol):
    """A view that changes."""

    @property
    def source(self) -> ChangeSource: ...

    def put(self, counts: Counts) -> None: ...

    def start_over(self) -> None: ...

    def rebuild(self) -> None: ...

    def trim(self) -> None: ...

    def close(self) -> None: ...


Make = Callable[[Path], World]


class Listed:
    def __init__(self, directory: Path) -> None:
        self.source = changes = ListedChanges()
        self.put, self.start_over = changes.put, changes.start_over
        self.rebuild, self.trim, self.close = changes.rebuild, changes.trim, changes.close


class InSqlite:
    def __init__(self, directory: Path) -> None:
        self._path, self._now_ms = directory / "counts.sqlite", 0
        self._generation = self._runs = 0
        self.rebuild()
        self.source = SqliteChanges(self._path, view="counts")

    def put(self, counts: Counts) -> None:
        self._job.put(counts)

    def start_over(self) -> None:
        self._job.close()
        self._run()
        self._job.put({})

    def rebuild(self) -> None:
        self._generation += 1
        self._run()
        self._job.put({})
        self._job.serve()

    def _run(self) -> None:
        self._runs += 1
        self._job = ViewJob(
            self._path,
            generation=self._generation,
            query=str(self._runs),
            clock=lambda: self._now_ms,
        )

    def trim(self) -> None:
        self._now_ms += HOUR_MS

    def close(self) -> None:
        self._job.close()
        self.source.close()


class Subscriber:
    """Applies what it gets, and keeps no more than its rows and the last token."""

    def __init__(self, source: ChangeSource, where: Where, slow: Slow) -> None:
        self._source, self._where, self._slow = source, where, slow
        self.rows: dict[str, int] = {}
        self.changes: list[Change] = []
        self._recent: Recent | None = None
        self.cut()

    def cut(self) -> None:
        """Its process is killed, and starts again."""
        token = self.changes[-1].token if self.changes else None
        if token is None:
            self.rows = {}
        self._come_back(token)

    def _come_back(self, token: str | None) -> None:
        self._ahead: Iterator[Change] = iter(())
        wish = Wish(where=self._where, since=token, slow=self._slow, buffer_max=5)
        self._follower = Follower("counts", wish, self._source)

    def look(self) -> None:
        tail = self._source.tail()
        if self._recent is None or self._recent.tail != tail:
            self._recent = followed(self._source, self._recent, tail)

    def take(self, count: int) -> None:
        try:
            while count and (change := self._next()) is not None:
                self.changes.append(change)
                self._apply(change)
                count -= 1
        except TooSlow as slowness:
            self._come_back(slowness.token)

    def _next(self) -> Change | None:
        while (change := next(self._ahead, None)) is None:
            if self._recent is None or not self._follower.is_behind(self._recent):
                return None
            self._ahead = self._follower.step(self._recent)
        return change

    def _apply(self, change: Change) -> None:
        if change.kind == "reset":
            self.rows.clear()
        elif change.key is not None and change.row is not None:
            self.rows[change.key["url"]] = change.row["count"]
        elif change.key is not None:
            self.rows.pop(change.key["url"], None)


def play(world: World, subscriber: Subscriber, steps: Steps) -> None:
    actions: dict[str, Callable[..., None]] = {
        "start over": world.start_over,
        "rebuild": world.rebuild,
        "trim": world.trim,
        "cut": subscriber.cut,
    }
    for step, of in steps:
        if step == "batch":
            world.put(of)
        elif step.endswith("take"):
            if step.startswith("look"):
                subscriber.look()
            with suppress(Forgotten):  # the next look shows what became of it
                subscriber.take(of)
        else:
            actions[step]()
    for _ in range(3):  # it may have been too slow, and come back
        subscriber.look()
        subscriber.take(1_000)


def rows_of(world: World, where: Where) -> dict[str, int]:
    current = world.source.current(where)
    assert current is not None
    return {row["url"]: row["count"] for _, row in current.rows}


def ends_with_the_view(
    make: Callable[[Path], World], steps: Steps, where: Where, slow: Slow
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = make(Path(directory))
        subscriber = Subscriber(world.source, where, slow)
        play(world, subscriber, steps)
        assert subscriber.rows == rows_of(world, where)
        world.close()


@settings(max_examples=200, deadline=None)
@given(rounds(ACCIDENT), st.sampled_from(WHERES), st.sampled_from(SLOW))
def test_who_is_cut_off_anywhere_ends_with_the_view(steps: Steps, where: Where, slow: Slow) -> None:
    ends_with_the_view(Listed, steps, where, slow)


@settings(max_examples=25, deadline=None)
@given(rounds(ACCIDENT), st.sampled_from(WHERES), st.sampled_from(SLOW))
def test_who_is_cut_off_anywhere_ends_with_the_view_in_sqlite(
    steps: Steps, where: Where, slow: Slow
) -> None:
    ends_with_the_view(InSqlite, steps, where, slow)


@settings(max_examples=100, deadline=None)
@given(rounds(st.nothing()), st.sampled_from(WHERES))
def test_every_change_comes_once_and_in_order(steps: Steps, where: Where) -> None:
    told_once_in_order(Listed, steps, where)


@settings(max_examples=20, deadline=None)
@given(rounds(st.nothing()), st.sampled_from(WHERES))
def test_every_change_comes_once_and_in_order_in_sqlite(steps: Steps, where: Where) -> None:
    told_once_in_order(InSqlite, steps, where)


def told_once_in_order(make: Make, steps: Steps, where: Where) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world, model = make(Path(directory)), ListedChanges()
        subscriber = Subscriber(world.source, where, "buffer")
        subscriber.look()
        subscriber.take(1)  # of the empty view: current
        play(world, subscriber, steps)
        world.close()
    for step, of in steps:
        if step == "batch":
            model.put(of)
    found = [
        (change.version, change.key["url"], change.row and change.row["count"])
        for change in subscriber.changes
        if change.key is not None
    ]
    expected = list(told_of(model, where))
    assert [version for version, *_ in found] == [version for version, *_ in expected]
    assert set(found) == set(expected), "a batch has one change of a key, in no order"


def told_of(model: ListedChanges, where: Where) -> Iterator[tuple[int, str, int | None]]:
    for change in model.all:
        if is_asked_for(change.now, where):
            yield change.version, change.key["url"], (change.now or {})["count"]
        elif is_asked_for(change.was, where):
            yield change.version, change.key["url"], None


def is_asked_for(row: Row | None, where: Where) -> bool:
    if row is None or where is None:
        return row is not None
    return row["count"] >= 2 if "count >=" in where else row["url"] in ("/", "/a")
