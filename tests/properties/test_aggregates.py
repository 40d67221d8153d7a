"""Whatever is done to an aggregate, its state is what a naive fold of the events says.

Commands, mistakes that are shunned, years that are closed, events of an older program that are
lifted, restarts, snapshots that are kept, damaged or lost, commits that come to nothing, folds
that fail halfway, refused commands that have changed the state in place.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate, FoldFailed, state_in
from millstream.eventsourcing.aggregates import Aggregates
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.replay import CannotShun
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent
from millstream.eventsourcing.upcasting import upcast
from tests.support.memory_events import CommitRefused, MemoryEvents, MemorySnapshots

STREAM = "Shelf:s"


@event(version=3)
class Added:
    sku: str
    count: int


@upcast(Added, from_version=1)
def _named(data: dict[str, Any]) -> dict[str, Any]:
    return {"sku": data["name"].lower()}


@upcast(Added, from_version=2)
def _one(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "count": 1}


@event
class Removed:
    sku: str


@event
class Looked:
    pass


@event
class Shaken:
    how: str


@event(closes=True)
class Counted:
    items: dict[str, int]


class Shelf(Aggregate, events=[Looked]):
    items: dict[str, int] = {}  # noqa: RUF012 - the initial state
    seen: set[str] = set()  # noqa: RUF012 - the same
    moves = 0

    def add(self, sku: str, count: int) -> Iterator[object]:
        for _ in range(2):
            if self.items.get(sku, 0) + count > 9:
                raise Rejected("no room")
            yield Added(sku, count)

    def remove(self, sku: str) -> Iterator[object]:
        if sku not in self.items:
            raise Rejected("there is none")
        yield Removed(sku)

    def look(self) -> Iterator[object]:
        yield Looked()

    def rest(self) -> Iterator[object]:
        yield from ()

    def shake(self, *, looks_first: bool) -> Iterator[object]:
        if looks_first:
            yield Looked()
        yield Shaken("hard")

    def rummage(self, sku: str) -> Iterator[object]:
        self.items.clear()
        self.seen.add(sku)
        yield from ()
        raise Rejected("nothing is to be taken")

    def close_year(self) -> Iterator[object]:
        yield Counted(dict(self.items))

    def on_Added(self, found: Added) -> None:  # noqa: N802 - the name of the event
        self.items[found.sku] = self.items.get(found.sku, 0) + found.count
        self.seen.add(found.sku)
        self.moves += 1

    def on_Removed(self, found: Removed) -> None:  # noqa: N802 - the same
        del self.items[found.sku]  # a shun can make it fail
        self.moves += 1

    def on_Shaken(self, found: Shaken) -> None:  # noqa: N802 - the same
        self.items.clear()
        self.moves += 100
        raise ValueError(found.how)

    def on_Counted(self, found: Counted) -> None:  # noqa: N802 - the same
        self.items = found.items


def naive(events: list[StoredEvent]) -> dict[str, Any]:
    """The state in twenty lines: no class, no snapshot, no shortcut."""
    data = [msgspec.json.decode(one.data) for one in events]
    pairs = list(zip(events, data, strict=True))
    shunned = {found["event"] for one, found in pairs if one.type == "$shunned"}
    items: dict[str, int] = {}
    seen: set[str] = set()
    moves = 0
    for one, found in pairs:
        if one.id in shunned:
            continue
        if one.type == "Counted":
            items, seen, moves = dict(found["items"]), set(), 0
        elif one.type == "Added":
            sku = found["sku"] if "sku" in found else found["name"].lower()
            items[sku] = items.get(sku, 0) + found.get("count", 1)
            seen.add(sku)
            moves += 1
        elif one.type == "Removed":
            del items[found["sku"]]
            moves += 1
    return {"items": items, "seen": seen, "moves": moves}


skus = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("add"), skus, st.integers(1, 3)),
    st.tuples(st.just("remove"), skus),
    st.tuples(st.sampled_from(["look", "rest", "close_year"])),
    st.tuples(st.just("rummage"), skus),
    st.tuples(st.just("shake"), st.booleans()),
    st.tuples(st.just("old"), st.sampled_from("ABC"), st.sampled_from([1, 2])),
    st.tuples(st.just("shun"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["restart", "lose", "damage", "drop", "refuse"])),
    st.tuples(st.just("as of"), st.integers(0, 30)),
)


class World:
    """A store, its snapshots, and a program that can be restarted."""

    def __init__(self, snapshot_every: int | None, states_max: int) -> None:
        self.store, self.snapshots = MemoryEvents(), MemorySnapshots()
        self.terms: dict[str, Any] = {"states_max": states_max}
        if snapshot_every is not None:
            kept = cast(SnapshotTopic, self.snapshots)
            self.terms |= {"snapshots": kept, "snapshot_every": snapshot_every}
        self.restart()

    def restart(self) -> None:
        self.shelves = Aggregates(Shelf, self.store.as_store, **self.terms)

    def take(self, name: str, *rest: Any) -> None:
        match name:
            case "restart":
                self.restart()
            case "lose":
                self.snapshots.values.clear()
            case "damage":
                for stream, value in self.snapshots.values.items():
                    self.snapshots.values[stream] = value[:-40] + b"?" + value[-39:]
            case "drop":
                self.store.drop_next = 1
            case "refuse":
                self.store.refuse_next = True
            case "old":
                self.write_old(*rest)
            case "shun":
                self.shun(*rest)
            case "as of":
                self.look_back(*rest)
            case "shake":
                self.shake(*rest)
            case command:
                self.command(command, *rest)

    def command(self, name: str, *arguments: Any) -> None:
        try:
            getattr(self.shelves["s"], name)(*arguments)
        except (Rejected, CommitRefused):
            self.store.drop_next = 0

    def shake(self, looks_first: bool) -> None:
        with pytest.raises(FoldFailed):
            self.shelves["s"].shake(looks_first=looks_first)

    def write_old(self, name: str, version: int) -> None:
        """As a program of another time wrote it."""
        data = {"name": name} if version == 1 else {"sku": name.lower()}
        number = len(self.store.events)
        new = NewEvent(
            type="Added", data=msgspec.json.encode(data), type_version=version, id=f"old-{number}"
        )
        self.store.append(STREAM, [new])

    def shun(self, number: int) -> None:
        if not self.store.events:
            return
        mistake = self.store.events[number % len(self.store.events)]
        try:
            self.shelves["s"].shun(mistake.id, why="a mistake")
        except (CannotShun, FoldFailed, CommitRefused):
            self.store.drop_next = 0

    def look_back(self, version: int) -> None:
        version %= len(self.store.events) + 1
        found = self.shelves["s"].state(version=version)
        assert state_in(found) == naive(self.store.events[:version])


@settings(max_examples=400)
@given(
    script=st.lists(steps, max_size=40),
    snapshot_every=st.sampled_from([None, 1, 2, 7]),
    states_max=st.sampled_from([0, 10]),
)
def test_the_state_is_what_a_naive_fold_says(
    script: list[tuple[Any, ...]], snapshot_every: int | None, states_max: int
) -> None:
    world = World(snapshot_every, states_max)
    for step in script:
        world.take(*step)
        found = world.shelves["s"].state()
        assert state_in(found) == naive(world.store.events)
        assert found.version == len(world.store.events)
