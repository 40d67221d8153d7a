"""PostgreSQL by triggers, as a capture uses it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from millstream.capture.change import CapturedTable, Change, Quiet, Transaction
from millstream.capture.postgres.catalogue import Catalogue, TableFacts, split_name
from millstream.capture.postgres.connection import conninfo_of
from millstream.capture.postgres.loading import Snapshot
from millstream.capture.postgres.refusals import translated
from millstream.capture.postgres.relations import TableReader, TopicOf
from millstream.capture.postgres.row_deletion import delete_rows
from millstream.capture.postgres_triggers.change_decoding import ChangeDecoder
from millstream.capture.postgres_triggers.change_log import ChangeLog, Mark, StoredChange
from millstream.capture.postgres_triggers.checks import findings
from millstream.capture.postgres_triggers.loading import TriggerLoader
from millstream.capture.postgres_triggers.position import Position
from millstream.capture.source import Finding, Lag, SourceLost, require_fit
from millstream.capture.table_versions import TableVersions

QUIET_SECONDS: Final = 1.0
LOOK_EVERY_S: Final = 0.02
# Tables that were made anew or rewritten, and what was confirmed, are looked after so often.
CARE_EVERY_S: Final = 1.0
# A snapshot before all transactions: 3 is the first number that one can have.
NOTHING: Final = Mark(Snapshot.from_text("3:3:"), "3:3:", (), None)


class ChangesGone(SourceLost):
    def __init__(self, *, capture: str, position: str, cause: str) -> None:
        super().__init__(
            f"the capture {capture} cannot go on after {position}: {cause}. Take away what is left "
            f"with `millstream capture drop {capture}`, add the capture again, and all tables are "
            "loaded anew"
        )
        self.capture, self.position, self.cause = capture, position, cause


class PostgresTriggerSource:
    """One capture of one database. Positions are snapshots (position.py).

    `tables`: names, with their schema, or without it in public. `topic_of` takes the full name.
    """

    kind = "postgresql"

    def __init__(
        self,
        url: str,
        *,
        capture: str,
        tables: Sequence[str],
        topic_of: TopicOf,
        known: Iterable[CapturedTable] = (),
    ) -> None:
        self._capture, self._names, self._topic_of = capture, list(tables), topic_of
        self._conninfo = conninfo_of(url, capture=capture)
        self._catalogue = Catalogue(self._conninfo)
        self._reading = Catalogue(self._conninfo)  # which is in the midst of a batch at times
        self._versions = TableVersions(known)
        self._reader = TableReader(self._catalogue, self._versions, topic_of)
        self._log = ChangeLog(self._reading, capture)
        self._beside = ChangeLog(self._catalogue, capture)
        self._decoder = ChangeDecoder(
            self._catalogue,
            self._reader,
            self._beside.shape,
            capture=capture,
            is_captured=self._is_captured,
        )
        self._confirmed: Position | None = None
        self._whole = NOTHING.position  # all that it saw was handed over
        self._care_at = 0.0
        self.quiet_seconds = QUIET_SECONDS

    @property
    def database(self) -> str:
        with translated(self._capture):
            return self._catalogue.connection.info.dbname

    def check(self) -> list[Finding]:
        with translated(self._capture):
            return findings(self._catalogue, self._capture, self._names)

    def prepare(self) -> str:
        require_fit(self._capture, self.check(), cannot="begin")
        with translated(self._capture):
            self._log.create(self._facts())
            marks = self._log.marks()
            if not marks:
                marks = [self._log.look(NOTHING)[0]]
                self._log.keep(marks[-1])
            return str(marks[-1].position)

    def tables(self) -> list[CapturedTable]:
        with translated(self._capture):
            return [self._reader.describe_now(facts)[0] for facts in self._facts()]

    def is_past(self, position: str, other: str) -> bool:
        """In the midst of a batch, what another snapshot saw may be in the rest of it."""
        here, there = Position.from_text(position), Position.from_text(other)
        is_amid = here.last_seq is not None and there.last_seq is None
        before = self._whole if is_amid else here
        return before.is_past(there)

    def confirm(self, position: str) -> None:
        """What is confirmed is deleted by the stream, now and then."""
        self._confirmed = Position.from_text(position)

    def add_tables(self, names: Sequence[str]) -> None:
        added = [name for name in names if name not in self._names]
        with translated(self._capture):
            unfit = findings(self._catalogue, self._capture, added)
            require_fit(self._capture, unfit, cannot=f"take {', '.join(added)}")
            self._beside.add(self._catalogue.tables(added))
        self._names += added

    def lag(self, position: str) -> Lag:
        """What waits is in a table of the capture's own; the server keeps no log for it."""
        with translated(self._capture):
            return Lag(bytes=None, retained_bytes=self._beside.size_bytes())

    def position_now(self) -> str:
        with translated(self._capture):
            return str(self._beside.look(NOTHING)[0].position)

    def loader(self) -> TriggerLoader:
        return TriggerLoader(
            self._conninfo,
            capture=self._capture,
            versions=self._versions,
            topic_of=self._topic_of,
        )

    def delete_rows(self, table: CapturedTable, keys: Sequence[bytes]) -> None:
        """Of an outbox. Keys are as in changes."""
        with translated(self._capture):
            delete_rows(self._catalogue, table, keys)

    def drop(self) -> None:
        self._reading.close()
        with translated(self._capture):
            self._beside.drop()

    def close(self) -> None:
        self._reading.close()
        self._catalogue.close()

    # --- the stream ---------------------------------------------------------------------------

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        self._reading.close()
        with translated(self._capture):
            position = Position.from_text(after)
            last, marks = self._begin(position)
            last_seq = position.last_seq or 0
            while True:
                for mark in marks:
                    self._whole = last.position
                    yield from self._transactions(last, mark, last_seq)
                    last, last_seq = mark, 0
                    position = mark.position
                yield Quiet(resume=str(position))
                position, marks = self._await_news(last)

    def _begin(self, after: Position) -> tuple[Mark, list[Mark]]:
        """The last mark that was handed over as a whole, and those after it.

        A position without a mark of its own had nothing new to what the mark before it saw.
        """
        if not self._log.is_there:
            raise self._gone(after, "its tables are not there any more")
        self._log.make_functions()
        marks = self._log.marks()
        whole = [mark for mark in marks if after.is_past(mark.position)]
        now, _ = self._log.look(NOTHING)
        if not whole or not now.position.is_past(after):
            raise self._gone(after, "the database does not know this position")
        return whole[-1], marks[len(whole) :]

    def _gone(self, position: Position, cause: str) -> ChangesGone:
        return ChangesGone(capture=self._capture, position=str(position), cause=cause)

    def _transactions(self, last: Mark, mark: Mark, last_seq: int) -> Iterator[Transaction]:
        """Of one batch. The last one ends with the mark, and says what it says."""
        batch = groupby(self._log.batch(last, mark), key=lambda stored: stored.last_seq)
        for seq, stored in batch:
            if seq > last_seq:
                first = next(stored)
                yield self._transaction(mark, first, stored)
        if mark.reloads:
            yield _reloading(mark)

    def _transaction(
        self, mark: Mark, first: StoredChange, rest: Iterator[StoredChange]
    ) -> Transaction:
        commit = mark.position._replace(last_seq=first.last_seq)
        is_last = first.last_seq == first.batch_last_seq and not mark.reloads
        return Transaction(
            commit=str(commit),
            resume=str(mark.position if is_last else commit),
            id=first.xid,
            at_ms=_to_ms(first.ended),
            changes=self._changes(first, rest),
        )

    def _changes(self, first: StoredChange, rest: Iterator[StoredChange]) -> Iterator[Change]:
        with translated(self._capture):
            yield from self._decoder.changes(first)
            for stored in rest:
                yield from self._decoder.changes(stored)

    def _await_news(self, last: Mark) -> tuple[Position, list[Mark]]:
        """How far all is handed over, and the next mark, if there is something new."""
        deadline = time.monotonic() + self.quiet_seconds
        while True:
            reloads = self._take_care()
            mark, has_news = self._log.look(last)
            if has_news or reloads:
                mark = mark._replace(reloads=tuple(reloads), at=datetime.now(UTC))
                self._log.keep(mark)
                return last.position, [mark]
            if time.monotonic() >= deadline:
                return mark.position, []
            time.sleep(min(LOOK_EVERY_S, self.quiet_seconds))

    def _take_care(self) -> list[str]:
        """Forgets what was confirmed; which tables are to be loaded anew."""
        if time.monotonic() < self._care_at:
            return []
        self._care_at = time.monotonic() + CARE_EVERY_S
        self._forget()
        return [facts.full_name for facts in self._log.renew(self._facts())]

    def _forget(self) -> None:
        """Up to the last mark that was handed over as a whole."""
        if self._confirmed is None:
            return
        whole = [mark for mark in self._log.marks() if self._confirmed.is_past(mark.position)]
        if whole:
            self._log.forget(whole[-1])
        self._confirmed = None

    def _facts(self) -> list[TableFacts]:
        return self._catalogue.tables(self._names)

    def _is_captured(self, table: str) -> bool:
        """By its name: triggers follow a table that is renamed, but our topics have names."""
        return split_name(table) in map(split_name, self._names)


def _reloading(mark: Mark) -> Transaction:
    """No transaction of the database: it says that tables are to be loaded anew."""
    position = str(mark.position)
    return Transaction(
        commit=position,
        resume=position,
        id="0",
        at_ms=_to_ms(mark.at) if mark.at is not None else 0,
        changes=(),
        reloads=mark.reloads,
    )


def _to_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
