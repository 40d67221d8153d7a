"""One run of a capture: from where the last one left off, until something ends it.

The database's transactions are written whole, several to a Kafka transaction when they come fast,
together with the position behind them; only then may the database forget them. Rows of the
initial load come in between. Whatever breaks, the run is over: the next one (`runner.py`) finds the
last committed position, and nothing is written twice or left out.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from millstream.base.clock import Clock
from millstream.capture.change import Quiet, Transaction
from millstream.capture.change_writer import ChangeWriter
from millstream.capture.load.loading import Loading
from millstream.capture.log_writer import LogWriter
from millstream.capture.outbox import DeletesRows
from millstream.capture.position_record import Note, Position, load_note, position_note
from millstream.capture.source import Source

# "changed": something else is wanted of it, by the next run.
End = Literal["stopped", "caught up", "changed", "dropped"]


# A batch ends with the transaction that makes it this large or this old. Readers see its changes
# only then: what waits here is seen later. Changes that are old already may wait longer: a commit
# takes some milliseconds, in which nothing is read.
class BatchSize(NamedTuple):
    changes_max: int
    age_ms_max: int

    def until(self, now_ms: int) -> tuple[int, int]:
        """How many changes, and until when, for one that begins now."""
        return self.changes_max, now_ms + self.age_ms_max


NEW_BATCH = BatchSize(10_000, 50)
OLD_BATCH = BatchSize(50_000, 500)
OLD_CHANGES_MS = 1_000
CHORES_EVERY_MS = 1_000
QUIET_SECONDS = 1.0
QUIET_SECONDS_LOADING = 0.01
QUIET_SECONDS_BEHIND = 0.005


class Chores(Protocol):
    """What is to be done about every second, besides the changes."""

    def look(self, streaming: "Streaming") -> End | None:
        """See what is wanted; whether the run is to end, and why."""
        ...

    def notes(self, streaming: "Streaming") -> list[Note]:
        """What is due to be told of the run, in the transaction that is about to be committed."""
        ...


@dataclass(slots=True)
class Counts:
    """Of this run."""

    transactions: int = 0
    changes: int = 0
    rows_loaded: int = 0


class Streaming:
    """Owned by one thread."""

    def __init__(
        self,
        capture: str,
        source: Source,
        writer: LogWriter,
        changes: ChangeWriter,
        loading: Loading,
        chores: Chores,
        *,
        position: Position,
        now_ms: Clock,
    ) -> None:
        self._capture, self._source, self._writer = capture, source, writer
        self._changes, self.loading, self._chores = changes, loading, chores
        self._resume, self._commit = position.resume, position.commit
        self._at_ms, self._reloads = position.at_ms, dict(position.reloads)
        self._now_ms = now_ms
        self.counts = Counts()
        self.behind_ms: int | None = None
        self._batch_changes, self._has_waited = 0, False
        self._batch_limits = NEW_BATCH.until(0)
        self._looked_ms = self._seen_ms = 0  # the clock, read once for each step

    @property
    def position(self) -> Position:
        """What the open Kafka transaction will say."""
        return Position(
            resume=self._resume, commit=self._commit, at_ms=self._at_ms, reloads=self._reloads
        )

    def follow(self, *, until: str | None = None) -> End:
        """Until something ends it, or all up to `until` is written, and all rows are loaded."""
        for step in self._source.stream(self._resume):
            self._seen_ms = self._now_ms()
            if isinstance(step, Transaction):
                self._take(step)
            else:
                self._rest(step)
            end = self._look()
            if end is None and until is not None and self._is_caught_up(until):
                end = "caught up"
            if end is not None:
                self.commit()
                return end
        raise AssertionError("a stream has no end")

    def _is_caught_up(self, until: str) -> bool:
        """`until` is empty where the database does not tell where it is."""
        is_past = not until or self._source.is_past(self._resume, until)
        return is_past and self.loading.is_done

    def commit(self) -> None:
        """All so far, with the position behind it. Then the database may forget it."""
        self._write_loaded()
        self._writer.note(self._changes.take_notes())
        self._writer.note(self._chores.notes(self))
        if not self._writer.is_begun:
            return
        self._writer.note([position_note(self._capture, self.position)])
        self._writer.commit()
        self.loading.committed()
        self._batch_changes = 0
        self._source.confirm(self._resume)
        self._empty_outbox()

    def reload(self, table: str, *, request: str) -> None:
        """Load it anew. That it began is due with the next commit, and the request kept there."""
        self.loading.reload(table)
        self._reloads[table] = request
        self.commit()

    # --- steps of the stream ------------------------------------------------------------------

    def _take(self, transaction: Transaction) -> None:
        self._has_waited = False
        if not self._batch_changes:
            self._begin_batch(transaction)
        followed = self.loading.followed(transaction)
        count = self._changes.write_transaction(transaction, followed, read_ms=self._seen_ms)
        self._count(transaction, count)
        if self._batch_changes and self._is_batch_full():
            self.commit()

    def _begin_batch(self, transaction: Transaction) -> None:
        is_old = self._seen_ms - transaction.at_ms >= OLD_CHANGES_MS
        self._batch_limits = (OLD_BATCH if is_old else NEW_BATCH).until(self._seen_ms)

    def _count(self, transaction: Transaction, count: int) -> None:
        self._batch_changes += count
        counts = self.counts
        counts.transactions += 1
        counts.changes += count
        self._commit, self._resume, _, self._at_ms, *_ = transaction
        self.behind_ms = max(0, self._seen_ms - self._at_ms)

    def _is_batch_full(self) -> bool:
        changes_max, until_ms = self._batch_limits
        return self._batch_changes >= changes_max or self._seen_ms >= until_ms

    def _rest(self, quiet: Quiet) -> None:
        self._resume = quiet.resume
        if self._may_wait_for_more():
            self._has_waited = True
            self._source.quiet_seconds = QUIET_SECONDS_BEHIND
            return
        self.behind_ms = 0
        self.commit()
        is_done = self.loading.is_done
        self._source.quiet_seconds = QUIET_SECONDS if is_done else QUIET_SECONDS_LOADING

    def _may_wait_for_more(self) -> bool:
        """A pause amid old changes is the database's, or the network's: more are on their way."""
        is_old = (self.behind_ms or 0) >= OLD_CHANGES_MS
        is_open = self._batch_changes > 0 and not self._has_waited
        return is_old and is_open and not self._is_batch_full()

    def _look(self) -> End | None:
        if 0 <= self._seen_ms - self._looked_ms < CHORES_EVERY_MS:  # a clock may be put back
            return None
        self._looked_ms = self._seen_ms
        return self._chores.look(self)

    # --- what comes with the changes ----------------------------------------------------------

    def _write_loaded(self) -> None:
        for due in self.loading.due(self._resume):
            position = due.position or self._resume
            self.counts.rows_loaded += self._changes.write_loaded(due.changes, position)
            for again in due.again:
                self._changes.write_again(again.change, again.transaction, again.seq)
            self._writer.note([load_note(self._capture, due.table.name, due.state)])

    def _empty_outbox(self) -> None:
        """Its rows are events now. One that stays, because this fails, is deleted by nobody; it is
        no event again either."""
        for table, keys in self._changes.take_outbox_keys().items():
            if isinstance(self._source, DeletesRows):
                self._source.delete_rows(table, keys)
