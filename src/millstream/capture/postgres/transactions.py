"""Messages of pgoutput to whole transactions, in the order of their commits.

Small transactions come whole, between Begin and Commit. Big ones come in blocks while they are
still running, several at a time, and end with a Stream Commit or Stream Abort; what was rolled
back inside of them is told by the number of the sub-transaction. Both are kept as they came, and
decoded while they are read.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from millstream.capture.change import (
    CREATED,
    DELETED,
    TRUNCATED,
    UPDATED,
    CapturedTable,
    Change,
    Message,
    PlacedChange,
    Transaction,
)
from millstream.capture.postgres import wire
from millstream.capture.postgres.lsn import lsn_to_text
from millstream.capture.postgres.row_decoder import RowDecoder
from millstream.capture.postgres.spool import Spool

# Messages of ours. A rewrite: all rows of the table that is named were written anew, unseen.
OWN_PREFIX: Final = "millstream:"
REWRITE_PREFIX: Final = "millstream:rewrite"
DROPPED_PREFIX: Final = "millstream:dropped"  # the table that is named is gone, with its rows
# How often the reader of a big transaction comes up for air.
PULSE_EVERY: Final = 2048
LSN_BYTES: Final = 8

Names = tuple[str, ...]
NULL_JSON: Final = b"null"
_ROWS: Final = frozenset({wire.INSERT, wire.UPDATE, wire.DELETE})


class Relations(Protocol):
    """Which table an oid means, in the version that the stream is at."""

    def learn(self, message: bytes) -> None: ...

    def of(self, oid: bytes) -> tuple[CapturedTable, RowDecoder]: ...

    def is_captured(self, name: str) -> bool: ...

    def last_of(self, name: str) -> CapturedTable | None:
        """By its full name; None if it was never seen."""
        ...


class _Open:
    """A transaction that has not ended yet."""

    __slots__ = ("has_changes", "rewrites", "rolled_back", "spool", "xid")

    def __init__(self, xid: int) -> None:
        self.xid = xid
        self.spool = Spool()
        self.rolled_back: set[int] = set()
        self.rewrites: list[tuple[int, str]] = []
        self.has_changes = False

    def reloads(self) -> tuple[str, ...]:
        """Each table once, in order."""
        if not self.rewrites:
            return ()
        kept = [table for xid, table in self.rewrites if xid not in self.rolled_back]
        return tuple(dict.fromkeys(kept))


class Transactions:
    """Put in every message, in order; take out transactions as they end.

    `pulse` is called now and then while a transaction is read, as that may take long. With
    `keeps_lsn` each change says where it is in the log: `message_lsn` is set before each message,
    and kept behind it, where nobody reads it as a part of the row.
    """

    def __init__(
        self, relations: Relations, pulse: Callable[[], None], *, keeps_lsn: bool = False
    ) -> None:
        self._relations, self._pulse, self.keeps_lsn = relations, pulse, keeps_lsn
        self.message_lsn = self._read_lsn = b""
        self._plain: _Open | None = None
        self._streamed: dict[int, _Open] = {}
        self._block: _Open | None = None
        self.end_lsn = 0  # of the last transaction that ended

    @property
    def is_inside(self) -> bool:
        """Part of a transaction that is already committed has come, and the rest has not."""
        return self._plain is not None

    def close(self) -> None:
        for transaction in [*self._streamed.values(), *filter(None, [self._plain])]:
            transaction.spool.close()
        self._plain, self._block, self._streamed = None, None, {}

    def put(self, message: bytes) -> Transaction | None:
        """The transaction that ended with this message, if it has anything for us."""
        kind, plain = message[0], self._plain
        if self._block is not None and kind != wire.STREAM_STOP:
            self._keep(self._block, int.from_bytes(message[1:5]), message[:1] + message[5:])
        elif plain is None:
            return self._put_control(kind, message)
        elif kind in _ROWS:
            plain.has_changes = True
            plain.spool.append(plain.xid, message + self.message_lsn)
        elif kind == wire.COMMIT:
            self._plain = None
            return self._committed(plain, wire.read_commit(message))
        else:
            self._keep(plain, plain.xid, message)
        return None

    def _put_control(self, kind: int, message: bytes) -> Transaction | None:
        """Outside of a plain transaction."""
        match kind:
            case wire.BEGIN:
                self._plain = _Open(wire.read_begin_xid(message))
            case wire.STREAM_START:
                xid = int.from_bytes(message[1:5])
                self._block = self._streamed.setdefault(xid, _Open(xid))
            case wire.STREAM_STOP:
                self._block = None
            case wire.STREAM_COMMIT:
                xid, commit = wire.read_stream_commit(message)
                return self._committed(self._streamed.pop(xid, _Open(xid)), commit)
            case wire.STREAM_ABORT:
                self._roll_back(*wire.read_stream_abort(message))
            case wire.MESSAGE:
                pass  # outside of any transaction: nobody can say whether it counts
            case wire.COMMIT:
                raise wire.BadMessage("a commit without a begin", message)
            case _:
                raise wire.BadMessage("a message outside of a transaction", message)
        return None

    def _keep(self, transaction: _Open, xid: int, message: bytes) -> None:
        kind = message[0]
        if kind in (wire.ORIGIN, wire.TYPE):
            return
        if kind == wire.MESSAGE:
            found = wire.read_message(message)
            if found.prefix == REWRITE_PREFIX:
                transaction.rewrites.append((xid, found.content.decode()))
            if not found.is_transactional or not self._must_keep(found):
                return
        transaction.has_changes |= kind != wire.RELATION
        if kind in _ROWS or kind == wire.TRUNCATE:
            message += self.message_lsn
        transaction.spool.append(xid, message)

    def _must_keep(self, message: wire.LogicalMessage) -> bool:
        """Of ours, the only one with a place among the changes: a captured table is dropped."""
        if message.prefix == DROPPED_PREFIX:
            return self._relations.is_captured(message.content.decode())
        return not message.prefix.startswith(OWN_PREFIX)

    def _roll_back(self, xid: int, sub_xid: int) -> None:
        if xid == sub_xid:
            self._streamed.pop(xid, _Open(xid)).spool.close()
        elif xid in self._streamed:
            self._streamed[xid].rolled_back.add(sub_xid)

    def _committed(self, transaction: _Open, commit: wire.Commit) -> Transaction | None:
        self.end_lsn = commit.end_lsn
        changes, reloads = self._changes(transaction), transaction.reloads()
        if not transaction.has_changes and not reloads:
            for _ in changes:  # what it says of tables counts for later ones
                pass
            return None
        return Transaction(
            lsn_to_text(commit.commit_lsn),
            lsn_to_text(commit.end_lsn),
            str(transaction.xid),
            commit.at_ms,
            changes,
            reloads,
            b',"lsn":%d' % commit.commit_lsn,
            commit.at_us,
        )

    def _changes(self, transaction: _Open) -> Iterator[Change | Message]:
        return self._placed(transaction) if self.keeps_lsn else self._read(transaction)

    def _placed(self, transaction: _Open) -> Iterator[Change | Message]:
        for item in self._read(transaction):
            if isinstance(item, Change):
                placed = PlacedChange(*item)
                placed.lsn = int.from_bytes(self._read_lsn)
                yield placed
            else:
                yield item

    def _read(self, transaction: _Open) -> Iterator[Change | Message]:
        """A table's description counts even where it came inside of what was rolled back: the
        server does not send it again."""
        rolled_back, relations = transaction.rolled_back, self._relations
        for number, (xid, message) in enumerate(transaction.spool):
            if number % PULSE_EVERY == PULSE_EVERY - 1:
                self._pulse()
            kind = message[0]
            if self.keeps_lsn:
                self._read_lsn = message[-LSN_BYTES:]
            if kind == wire.RELATION:
                relations.learn(message)
            elif xid in rolled_back:
                continue
            elif kind == wire.INSERT:
                yield _inserted(message, *relations.of(message[1:5]))
            elif kind == wire.UPDATE:
                table, decoder = relations.of(message[1:5])
                found = decoder.row(message, 6) if message[5] == wire.NEW_ROW else None
                if found is not None:  # nearly all are: the key as it was, all values sent
                    yield Change(table, UPDATED, found[0], None, found[1])
                else:
                    yield from _updated(message, table, decoder)
            elif kind == wire.DELETE:
                yield _deleted(message, *relations.of(message[1:5]))
            else:
                yield from self._rare(kind, message)
        transaction.spool.close()

    def _rare(self, kind: int, message: bytes) -> Iterator[Change | Message]:
        if kind == wire.TRUNCATE:
            for oid in wire.read_truncate(message):
                table, _ = self._relations.of(oid)
                yield Change(table, TRUNCATED, None, None, None)
        elif kind == wire.MESSAGE:
            yield from self._read_message(wire.read_message(message))
        else:
            raise wire.BadMessage(f"a message {chr(kind)!r} that is not known", message)

    def _read_message(self, message: wire.LogicalMessage) -> Iterator[Change | Message]:
        if message.prefix != DROPPED_PREFIX:
            yield Message(message.prefix, message.content)
        elif (table := self._relations.last_of(message.content.decode())) is not None:
            yield Change(table, TRUNCATED, None, None, None)


def _inserted(message: bytes, table: CapturedTable, decoder: RowDecoder) -> Change:
    found = decoder.row(message, 6)
    if found is None:
        raise wire.BadMessage("a new row with values that are not sent", message)
    return Change(table, CREATED, found[0], None, found[1])


def _deleted(message: bytes, table: CapturedTable, decoder: RowDecoder) -> Change:
    key, before, _ = _old(message, decoder)
    return Change(table, DELETED, key, before, None)


def _updated(message: bytes, table: CapturedTable, decoder: RowDecoder) -> Iterator[Change]:
    """Under another key, a row goes and one comes."""
    if message[5] == wire.NEW_ROW:
        key, after, unavailable = _new_with_gaps(message, 6, decoder, ())
        yield Change(table, UPDATED, key, None, after, unavailable)
        return
    old_key, before, end = _old(message, decoder)
    key, after, unavailable = _new(message, end + 1, decoder)
    if old_key == key:
        yield Change(table, UPDATED, key, before, after, unavailable)
    else:
        yield Change(table, DELETED, old_key, before, None)
        yield Change(table, CREATED, key, None, after, unavailable)


def _old(message: bytes, decoder: RowDecoder) -> tuple[bytes | None, bytes, int]:
    """The key, what the server tells of the old row, and where that ends."""
    found = (decoder.row if message[5] == wire.OLD_ROW else decoder.identity)(message, 6)
    if found is not None:
        return found
    parts, end = decoder.parts(message, 6)
    return decoder.key_of(parts), decoder.row_of(parts), end


def _new(message: bytes, at: int, decoder: RowDecoder) -> tuple[bytes | None, bytes, Names]:
    """The new row behind the old one."""
    found = decoder.row(message, at)
    if found is not None:
        return found[0], found[1], ()
    old, _ = decoder.parts(message, 6)
    return _new_with_gaps(message, at, decoder, old)


def _new_with_gaps(
    message: bytes, at: int, decoder: RowDecoder, old: Sequence[bytes | None]
) -> tuple[bytes | None, bytes, Names]:
    """What was not sent as it did not change may be in the old row. It was not null, as only long
    values are left out: a null there is a column that is not in the old key."""
    parts, _ = decoder.parts(message, at)
    for number, former in enumerate(old):
        if parts[number] is None and former != NULL_JSON:
            parts[number] = former
    return decoder.key_of(parts), decoder.row_of(parts), decoder.unavailable(parts)
