"""Which rows of a chunk may go out after what the stream has handed over meanwhile. Pure.

A chunk is what one snapshot of the database saw. It goes out when the stream has passed everything
that the snapshot could have seen. By then the stream may have handed over more: a row is dropped
when a transaction that the snapshot does not see touched its key, as its newer value is in the
log already. What the snapshot sees is asked of the chunk, never taken from the order of the log:
a commit that waits for a synchronous standby is in the log before any query sees it.

So every transaction is noted in the `Journal` until some later snapshot is known to see it. One
that touched more keys than are noted, or came before keys were noted, has the chunk read again.
Of those that a former run handed over, that passed while nothing was loaded, or that were too many,
nothing is noted: the database has to *settle* first, until a snapshot sees them all.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.source import Chunk

# At some 150 bytes each: 15 MB. Beyond it a transaction is known, but not its keys.
KEYS_MAX: Final = 100_000
# Of a table without a key, changes are kept whole.
KEYLESS_CHANGES_MAX: Final = 10_000
# Beyond it the oldest is forgotten: then the database is asked when all up to now can be seen.
TRANSACTIONS_MAX: Final = 10_000


class Again(NamedTuple):
    """A change of a table without a key that is newer than the rows before it."""

    transaction: Transaction
    seq: int
    change: Change


class Noted:
    """A transaction that was handed over, and what it touched of the tables that were loading.

    `keys` and `changes` are by table; None: it touched the table, who knows where. Made for every
    transaction of a capture, so it costs little.
    """

    __slots__ = ("_facts", "_transaction", "changes", "keys", "number", "seen_at", "tables")

    def __init__(self, number: int, transaction: Transaction, tables: frozenset[str]) -> None:
        self.number, self.tables = number, tables
        self.keys: dict[str, set[bytes] | None] = {}
        self.changes: dict[str, list[Again] | None] = {}
        self.seen_at: int | None = None  # the journal's clock when a snapshot had seen it
        self._facts = (transaction.commit, transaction.resume, transaction.id, transaction.at_ms)
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction:
        """Without its changes: those may be large, and are handed over."""
        if self._transaction is None:
            commit, resume, number, at_ms = self._facts
            self._transaction = Transaction(
                commit=commit, resume=resume, id=number, at_ms=at_ms, changes=()
            )
        return self._transaction

    def touched(self, table: str) -> bool:
        return table not in self.tables or table in self.keys or table in self.changes

    def keys_of(self, table: str) -> set[bytes] | None:
        return self.keys.get(table, set()) if table in self.tables else None

    def changes_of(self, table: str) -> list[Again] | None:
        return self.changes.get(table, []) if table in self.tables else None


class Journal:
    """The transactions handed over that a snapshot might not see, the oldest first."""

    def __init__(self) -> None:
        self._noted: deque[Noted] = deque()
        self._next_number = 0
        self._clock = 0  # counts openings
        self._forgotten = -1  # the newest one that is not noted; at first, those of former runs
        self._blind_until = -1  # what was opened up to this clock may not see one of these
        self._settled = -1  # all before this one are seen
        self._keys_len = 0

    def __iter__(self) -> Iterator[Noted]:
        return iter(self._noted)

    def __len__(self) -> int:
        return len(self._noted)

    def enter(self, transaction: Transaction, tables: frozenset[str]) -> Noted:
        """A transaction is about to be handed over; keys are told of these tables."""
        noted = Noted(self._next_number, transaction, tables)
        self._next_number += 1
        self._noted.append(noted)
        if len(self._noted) > TRANSACTIONS_MAX:
            self._forget(self._noted.popleft())
        return noted

    def pass_by(self) -> None:
        """A transaction is handed over while nothing is loaded."""
        self._forgotten, self._blind_until = self._next_number, self._clock
        self._next_number += 1

    def _forget(self, noted: Noted) -> None:
        if noted.seen_at is None:
            self._forgotten, self._blind_until = noted.number, self._clock
        else:
            self._blind_until = max(self._blind_until, noted.seen_at)
        self._let_go(noted)

    def add_key(self, noted: Noted, table: str, key: bytes) -> None:
        keys = noted.keys.setdefault(table, set())
        if keys is None:
            return
        if self._keys_len >= KEYS_MAX:
            self.touch_all(noted, table)
        elif key not in keys:
            keys.add(key)
            self._keys_len += 1

    def add_change(self, noted: Noted, table: str, again: Again) -> None:
        changes = noted.changes.setdefault(table, [])
        if changes is None:
            return
        if len(changes) >= KEYLESS_CHANGES_MAX or self._keys_len >= KEYS_MAX:
            self.touch_all(noted, table)
        else:
            changes.append(again)
            self._keys_len += 1

    def touch_all(self, noted: Noted, table: str) -> None:
        """Any row of the table, as far as we know."""
        self._keys_len -= len(noted.keys.get(table) or ()) + len(noted.changes.get(table) or ())
        noted.keys[table], noted.changes[table] = None, None

    def forget_keys(self, table: str) -> None:
        """Its load begins anew: a row must be found by it, or be written after this."""
        for noted in self._noted:
            self.touch_all(noted, table)

    def open(self) -> "Opening":
        """Whatever is read from now on starts here."""
        self._clock += 1
        return Opening(clock=self._clock, number=self._next_number)

    def has_all_unseen(self, opening: "Opening") -> bool:
        """Whether all is noted that a snapshot taken after the opening may not see."""
        return self._blind_until < opening.clock

    @property
    def must_settle(self) -> bool:
        """Whether there may be transactions that no snapshot sees and nobody has noted."""
        return self._forgotten >= self._settled

    def settle(self, opening: "Opening") -> None:
        """Every snapshot from now on sees what was handed over before the opening."""
        self._settled = max(self._settled, opening.number)
        for noted in self._noted:
            if noted.number < opening.number and noted.seen_at is None:
                noted.seen_at = self._clock

    def saw(self, chunk: Chunk) -> None:
        """What one snapshot sees, all later ones see."""
        for noted in self._noted:
            if noted.seen_at is None and chunk.sees(noted.transaction):
                noted.seen_at = self._clock

    def trim(self, oldest: "Opening | None") -> None:
        """Let go what every snapshot sees that is still to come or not yet out."""
        kept: deque[Noted] = deque()
        for noted in self._noted:
            if _is_needed(noted, oldest):
                kept.append(noted)
            else:
                self._let_go(noted)
        self._noted = kept

    def _let_go(self, noted: Noted) -> None:
        if not (noted.keys or noted.changes):
            return
        for table in {*noted.keys, *noted.changes}:
            self.touch_all(noted, table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A moment between two transactions: `number` is the first one handed over after it."""

    clock: int
    number: int


def _is_needed(noted: Noted, oldest: Opening | None) -> bool:
    if noted.seen_at is None:
        return True
    return oldest is not None and noted.seen_at >= oldest.clock


class Window:
    """One chunk from before it is read until it goes out."""

    def __init__(self, table: CapturedTable, opening: Opening) -> None:
        self.table, self.opening = table, opening
        self.chunk: Chunk | None = None
        self.must_read_again = False
        self._rows: dict[bytes, bytes] = {}
        self._again: list[Again] = []

    def arrive(self, chunk: Chunk, journal: Journal) -> None:
        """The chunk is read: take from it what the journal says."""
        self.chunk, name = chunk, self.table.name
        if self.table.key:
            self._rows = dict(chunk.rows)
        self.must_read_again = not journal.has_all_unseen(self.opening)
        for noted in journal:
            if noted.touched(name) and not chunk.sees(noted.transaction):
                self._take_out(noted)

    def _take_out(self, noted: Noted) -> None:
        name = self.table.name
        if self.table.key:
            keys = noted.keys_of(name)
            if keys is None:
                self.must_read_again = True
            else:
                self.drop(keys)
        else:
            changes = noted.changes_of(name)
            if changes is None:
                self.must_read_again = True
            else:
                self._again.extend(changes)

    def is_blind_to(self, transaction: Transaction) -> bool:
        """Whether this transaction's changes are newer than the rows that are held here."""
        return self.chunk is not None and not self.chunk.sees(transaction)

    def drop(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def add_again(self, again: Again) -> None:
        if len(self._again) >= KEYLESS_CHANGES_MAX:
            self.must_read_again = True
        else:
            self._again.append(again)

    def rows(self) -> list[tuple[bytes | None, bytes]]:
        """What survived, in the chunk's order."""
        if self.table.key:
            return [*self._rows.items()]
        return [(None, after) for _, after in self.chunk.rows] if self.chunk else []

    def again(self) -> tuple[Again, ...]:
        return tuple(self._again)
