"""Loads between changes against a simulated database and log: whatever happens, they agree.

The database commits into its log first and shows a transaction to queries later, in any order, as
one with a synchronous standby does; a row stays locked until its transaction is seen. Reads of
chunks begin and end at any time. The capture crashes and goes on with what was committed; tables
are reloaded and truncated meanwhile.

The naive model is the database's log itself: when all up to a position was handed over, the row
of a key is what the last of those transactions made of it. A row that goes out must be that row.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.load import table_course, window
from millstream.capture.load.course import Course, Due
from millstream.capture.load.plan import load_from_json
from millstream.capture.load.table_course import Answer, Ask, Parts, Read, Scan, Settle, Split

ORDERS = CapturedTable(name="orders", topic="shop.orders", columns=(), key=("id",))
NOTES = CapturedTable(name="notes", topic="shop.notes", columns=(), key=())
KEYS = 8
Rows = dict[int, int]


def key_of(key: int) -> bytes:
    return b'{"id":%d}' % key


def number_in(text: bytes) -> int:
    found = re.search(rb"\d+", text)
    assert found is not None
    return int(found[0])


@dataclass
class Committed:
    """A transaction in the database's log. A write of None deletes; TRUNCATE is a write of ALL."""

    number: int
    table: CapturedTable
    writes: list[tuple[int, int | None]]
    is_truncate: bool = False
    is_seen: bool = False

    def apply(self, rows: Rows) -> None:
        if self.is_truncate:
            rows.clear()
        for key, value in self.writes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def transaction(self, before: Rows) -> Transaction:
        return Transaction(
            commit=str(self.number),
            resume=str(self.number + 1),
            id=str(self.number),
            at_ms=0,
            changes=list(self._changes(dict(before))),
        )

    def _changes(self, rows: Rows) -> Iterator[Change]:
        if self.is_truncate:
            yield Change(self.table, "t", None, None, None)
            rows.clear()
        for key, value in self.writes:
            yield self._change(key, rows.get(key), value)
            Committed(0, self.table, [(key, value)]).apply(rows)

    def _change(self, key: int, before: int | None, value: int | None) -> Change:
        """Of a table without a key the old row is told, as with REPLICA IDENTITY FULL."""
        op = "d" if value is None else "c" if before is None else "u"
        old = None if before is None else row_of(key, before)
        new = None if value is None else row_of(key, value)
        return Change(self.table, op, key_of(key) if self.table.key else None, old, new)  # type: ignore[arg-type]


def row_of(key: int, value: int) -> bytes:
    return b'{"id":%d,"value":%d}' % (key, value)


@dataclass
class SnapshotChunk:
    table: CapturedTable
    rows: Sequence[tuple[bytes, bytes]]
    last_key: str | None
    closes_at: str
    seen: frozenset[str]

    def sees(self, transaction: Transaction) -> bool:
        return transaction.id in self.seen


@dataclass
class Database:
    log: list[Committed] = field(default_factory=list)
    start: int = 0  # where the capture began: all before is seen

    def locked(self, table: CapturedTable) -> set[int]:
        """A row is locked until queries see its last writer; a truncated table is, as a whole."""
        unseen = [one for one in self.log if not one.is_seen and one.table is table]
        if any(one.is_truncate for one in unseen):
            return set(range(KEYS))
        return {key for one in unseen for key, _ in one.writes}

    def commit(self, table: CapturedTable, writes: list[tuple[int, int | None]]) -> None:
        self.log.append(Committed(len(self.log), table, writes))

    def rows_at(self, table: CapturedTable, position: int) -> Rows:
        rows: Rows = {}
        for one in self.log[:position]:
            if one.table is table:
                one.apply(rows)
        return rows

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> SnapshotChunk:
        """Keys in (after, until], as a snapshot of now sees them."""
        rows: Rows = {}
        for one in self.log:
            if one.table is table and one.is_seen:
                one.apply(rows)
        low = -1 if after is None else int(after)
        high = KEYS if until is None else int(until)
        keys = sorted(key for key in rows if low < key <= high)
        found = keys[:rows_max]
        return SnapshotChunk(
            table=table,
            rows=[(key_of(key), row_of(key, rows[key])) for key in found],
            last_key=str(found[-1]) if len(keys) > len(found) else None,
            closes_at=str(len(self.log)),
            seen=frozenset(str(one.number) for one in self.log if one.is_seen),
        )


class LeftInMemory(set[bytes]):
    def take(self, count: int) -> list[bytes]:
        taken = sorted(self)[:count]
        self.difference_update(taken)
        return taken

    def close(self) -> None:
        pass


@dataclass
class Record:
    table: CapturedTable
    change: Change
    is_committed: bool = False


class Play:
    """A capture of two tables: its log, what it keeps, and the steps that somebody takes."""

    def __init__(self, first_rows: list[int]) -> None:
        self.database = Database()
        for table in (ORDERS, NOTES):
            self.database.commit(table, [(key, 1000 + key) for key in first_rows])
        for one in self.database.log:
            one.is_seen = True
        self.records: list[Record | None] = []  # None: of a transaction that was aborted
        self.states: dict[str, str] = {}
        self.position = len(self.database.log)
        self.values = 0
        self.new_states: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        """A run of the capture, with what was committed."""
        self.handed = self.position
        self.new_states = dict(self.states)
        self.asked: list[tuple[Ask, int]] = []  # and where the log was
        self.answered: list[tuple[Ask, Answer]] = []
        self.course = Course(
            ends=lambda _topic: [len(self.records)],
            is_past=lambda position, other: int(position) >= int(other),
            chunk_rows_max=2,
            chunks_ahead_max=4,
            ranges_max=2,
        )
        for table in (ORDERS, NOTES):
            state = self.states.get(table.name)
            self.course.add(table, load_from_json(table.name, state) if state else None)

    # What may happen.

    def take(self, step: tuple[str, int, int]) -> None:
        name, one, other = step
        table = (ORDERS, NOTES)[one % 2]
        match name:
            case "write":
                self.write(table, one // 2, other)
            case "truncate" if not self.database.locked(table):
                self.truncate(table, one // 2 if other % 2 else None)
            case "show":
                self.show(one)
            case "show all":
                self.show_all()
            case "hand over":
                for _ in range(1 + other % 4):
                    self.hand_over()
            case "ask":
                self.ask()
            case "read" if self.asked:
                self.read(one % len(self.asked))
            case "arrive" if self.answered:
                self.course.arrived(*self.answered.pop(one % len(self.answered)))
            case "due":
                self.write_due()
            case "change":
                self.write(table, one // 2, other)
                self.hand_over()
            case "read all":
                self.read_all()
            case "load":
                self.load()
            case "load on":
                self.load_on(1 + other)
            case "commit":
                self.commit()
            case "crash":
                self.crash()
            case "reload":
                self.course.reload(table.name)

    def next_value(self) -> int:
        self.values += 1
        return self.values

    def write(self, table: CapturedTable, first: int, shape: int) -> None:
        keys = {first % KEYS, (first + shape) % KEYS} - self.database.locked(table)
        writes = [(key, None if shape % 3 == 0 else self.next_value()) for key in sorted(keys)]
        if writes:
            self.database.commit(table, writes)

    def truncate(self, table: CapturedTable, key: int | None) -> None:
        """And maybe write a row anew, in the same transaction."""
        writes = [] if key is None else [(key % KEYS, self.next_value())]
        number = len(self.database.log)
        self.database.log.append(Committed(number, table, [*writes], is_truncate=True))

    def show(self, which: int) -> None:
        unseen = [one for one in self.database.log if not one.is_seen]
        if unseen:
            unseen[which % len(unseen)].is_seen = True

    def show_all(self) -> None:
        for one in self.database.log:
            one.is_seen = True

    # What the runner does.

    def load(self) -> None:
        """All that is asked for, at once."""
        self.read_all()
        for answered in self.answered:
            self.course.arrived(*answered)
        self.answered.clear()
        self.write_due()

    def load_on(self, rounds: int) -> None:
        """Nobody writes for a while."""
        self.show_all()
        while self.handed < len(self.database.log):
            self.hand_over()
        for _ in range(rounds):
            self.load()
            self.commit()
            if self.course.is_done:
                break

    def read_all(self) -> None:
        self.ask()
        for place in reversed(range(len(self.asked))):
            self.read(place)

    def ask(self) -> None:
        self.asked += [(ask, len(self.database.log)) for ask in self.course.asks()]

    def read(self, place: int) -> None:
        ask, asked_at = self.asked[place]
        unseen = [one for one in self.database.log[:asked_at] if not one.is_seen]
        if not isinstance(ask, Settle) or not unseen:
            self.answered.append((ask, self.answer(ask)))
            del self.asked[place]

    def hand_over(self) -> None:
        if self.handed < len(self.database.log):
            one = self.database.log[self.handed]
            before = self.database.rows_at(one.table, self.handed)
            for change in self.course.followed(one.transaction(before)):
                assert isinstance(change, Change)
                self.records.append(Record(one.table, change))
            self.handed += 1

    def answer(self, ask: Ask) -> Answer:
        match ask:
            case Settle():
                return None
            case Split():
                parts = [(None, "3"), ("3", None)] if ask.table.key else [(None, None)]
                return Parts(parts=parts, rows_estimate=KEYS)
            case Read():
                return self.database.read(ask.table, ask.after, ask.until, ask.rows_max)
            case Scan():
                return self.keys_left(ask.topic, ask.ends[0])

    def keys_left(self, topic: str, end: int) -> LeftInMemory:
        left = LeftInMemory()
        for offset, record in enumerate(self.records):
            if record is None or not record.is_committed or record.table.topic != topic:
                continue
            if record.change.key is not None:
                is_left = offset < end and record.change.op != "d"
                (left.add if is_left else left.discard)(record.change.key)
        return left

    def write_due(self) -> None:
        for due in self.course.due(str(self.handed)):
            self.check(due)
            changes = [*due.changes, *(again.change for again in due.again)]
            self.records += [Record(due.table, change) for change in changes]
            self.new_states[due.table.name] = due.state

    def commit(self) -> None:
        self.write_due()
        for record in self.records:
            if record is not None:
                record.is_committed = True
        self.states, self.position = dict(self.new_states), self.handed
        self.course.committed()

    def crash(self) -> None:
        self.records = [one if one and one.is_committed else None for one in self.records]
        self.begin()

    # What must hold.

    def check(self, due: Due) -> None:
        """A loaded row is what the changes before it made; a swept key is of no row."""
        rows = self.database.rows_at(due.table, self.handed)
        for change in due.changes:
            if change.op == "r" and due.table.key:
                assert change.after is not None
                assert change.key is not None
                key = number_in(change.key)
                assert key in rows, f"{change.key!r} was deleted"
                assert change.after == row_of(key, rows[key]), "an older row over a newer one"
            elif change.op == "d":
                assert change.key is not None
                assert number_in(change.key) not in rows, f"{change.key!r} is there"

    def finish(self) -> None:
        self.load_on(200)
        assert self.course.is_done, self.course.progress()
        assert self.followed_by_key() == self.expected(ORDERS)
        assert self.followed_as_a_bag() == Counter(self.expected(NOTES).values())

    def expected(self, table: CapturedTable) -> dict[bytes, bytes]:
        rows = self.database.rows_at(table, len(self.database.log))
        return {key_of(key): row_of(key, value) for key, value in rows.items()}

    def followed_by_key(self) -> dict[bytes, bytes]:
        """As a reader sees it who knows keys and tombstones only, and no TRUNCATE."""
        rows: dict[bytes, bytes] = {}
        for change in self.changes_of(ORDERS):
            if change.key is not None and change.op == "d":
                rows.pop(change.key, None)
            elif change.key is not None and change.after is not None:
                rows[change.key] = change.after
        return rows

    def followed_as_a_bag(self) -> Counter[bytes]:
        rows: Counter[bytes] = Counter()
        for change in self.changes_of(NOTES):
            if change.op == "t":
                rows.clear()
            if change.before is not None:
                rows[change.before] -= 1
            if change.after is not None:
                rows[change.after] += 1
        return Counter({row: count for row, count in rows.items() if count})

    def changes_of(self, table: CapturedTable) -> Iterator[Change]:
        for record in self.records:
            if record is not None and record.is_committed and record.table is table:
                yield record.change


OFTEN = ["write", "hand over", "change", "ask", "read", "read all", "arrive", "load", "due"]
SELDOM = ["show", "show all", "load on", "commit", "crash", "reload", "truncate"]
STEPS = st.lists(
    st.tuples(st.sampled_from([*OFTEN * 2, *SELDOM]), st.integers(0, 15), st.integers(0, 7)),
    min_size=30,
    max_size=60,
)
FIRST_ROWS = st.lists(st.integers(0, KEYS - 1), unique=True)
LIMITS = {
    "TRANSACTIONS_MAX": window,
    "KEYS_MAX": window,
    "KEYLESS_CHANGES_MAX": window,
    "TOUCHED_MAX": table_course,
}


def play_often(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(first_rows=FIRST_ROWS, steps=STEPS)
    def play(first_rows: list[int], steps: list[tuple[str, int, int]]) -> None:
        played = Play(sorted(first_rows))
        for step in steps:
            played.take(step)
        played.finish()

    play()


def test_what_is_followed_equals_the_table_whatever_happens_meanwhile() -> None:
    play_often(100)


@pytest.mark.parametrize("limit", LIMITS)
def test_it_does_so_when_there_is_no_room_to_note_what_passes(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS[limit], limit, 1)
    play_often(30)


@pytest.mark.full
@pytest.mark.parametrize("limit", [None, *LIMITS])
def test_it_does_so_in_many_more_cases(limit: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if limit is not None:
        monkeypatch.setattr(LIMITS[limit], limit, 1)
    play_often(300)
