"""PostgreSQL by logical replication, as a capture uses it."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from millstream.base.errors import MillstreamError
from millstream.capture.change import CapturedTable, Quiet, Transaction
from millstream.capture.postgres import checks
from millstream.capture.postgres.catalogue import Catalogue, TableFacts, split_name
from millstream.capture.postgres.connection import (
    ReplicationConnection,
    ReplicationError,
    conninfo_of,
)
from millstream.capture.postgres.following import QUIET_SECONDS, follow
from millstream.capture.postgres.loading import PostgresLoader, position_now
from millstream.capture.postgres.lsn import lsn_from_text, lsn_to_text
from millstream.capture.postgres.refusals import (
    IN_USE,
    NOT_IN_STATE,
    UNDEFINED_OBJECT,
    SlotBusy,
    SlotLost,
    TableNotPublished,
    refusal,
    translated,
)
from millstream.capture.postgres.relations import StreamedTables, TableReader, TopicOf
from millstream.capture.postgres.row_deletion import delete_rows
from millstream.capture.postgres.slot import Slot, SlotState
from millstream.capture.postgres.transactions import Transactions
from millstream.capture.source import Finding, Lag, require_fit
from millstream.capture.table_versions import TableVersions

# A run that was killed may hold the slot until the server notices.
SLOT_BUSY_TRIES: Final = 100
SLOT_BUSY_PAUSE_S: Final = 0.1
STREAMING_SINCE: Final = 140000
_LAG: Final = """
SELECT pg_current_wal_lsn() - %s::pg_lsn, pg_current_wal_lsn() - restart_lsn,
       (SELECT CASE setting::bigint WHEN -1 THEN NULL ELSE setting::bigint * 1048576 END
          FROM pg_settings WHERE name = 'max_slot_wal_keep_size')
  FROM pg_replication_slots WHERE slot_name = %s
"""


class PostgresSource:
    """One capture of one database. Positions are places in its log, `16/B374D848`.

    `tables`: names, with their schema, or without it in public. `topic_of` takes the full name.
    `keeps_lsn`: each change is a `PlacedChange`.
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
        keeps_lsn: bool = False,
    ) -> None:
        self._keeps_lsn = keeps_lsn
        self._capture, self._names, self._topic_of = capture, list(tables), topic_of
        self._conninfo = conninfo_of(url, capture=capture)
        self._catalogue = Catalogue(self._conninfo)
        self._versions = TableVersions(known)
        self._reader = TableReader(self._catalogue, self._versions, topic_of)
        self._slot = Slot(self._catalogue, capture)
        self._connection: ReplicationConnection | None = None
        self.quiet_seconds = QUIET_SECONDS

    @property
    def database(self) -> str:
        with translated(self._capture):
            return self._catalogue.connection.info.dbname

    def check(self) -> list[Finding]:
        with translated(self._capture):
            return checks.findings(self._catalogue, self._slot, self._names)

    def prepare(self) -> str:
        require_fit(self._capture, self.check(), cannot="begin")
        with translated(self._capture):
            return lsn_to_text(self._slot.make(self._facts()))

    def tables(self) -> list[CapturedTable]:
        with translated(self._capture):
            return [self._reader.describe_now(facts)[0] for facts in self._facts()]

    def is_past(self, position: str, other: str) -> bool:
        return lsn_from_text(position) >= lsn_from_text(other)

    def confirm(self, position: str) -> None:
        if self._connection is not None:
            with self._translated_stream(position):
                self._connection.confirm(lsn_from_text(position))

    def add_tables(self, names: Sequence[str]) -> None:
        """Not one whose updates the server would refuse once it is published."""
        with translated(self._capture):
            unfit = checks.findings_of(self._catalogue, names)
            require_fit(self._capture, unfit, cannot=f"take {', '.join(names)}")
            self._names += [name for name in names if name not in self._names]
            self._slot.add_tables(self._facts())

    def lag(self, position: str) -> Lag:
        """Asked now and then: so it is seen, too, when a table is not published any more."""
        with translated(self._capture):
            self._require_published()
            rows = self._catalogue.ask(_LAG, [position, self._slot.name])
        if not rows:
            return Lag(bytes=None, retained_bytes=None)
        behind, retained, retained_max = rows[0]
        return Lag(
            bytes=max(0, int(behind)),
            retained_bytes=None if retained is None else int(retained),
            retained_bytes_max=retained_max,
        )

    def position_now(self) -> str:
        with translated(self._capture):
            return position_now(self._catalogue)

    def loader(self) -> PostgresLoader:
        return PostgresLoader(
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
        self._close_stream()
        with translated(self._capture):
            self._until_slot_is_free()
            self._slot.drop()

    def close(self) -> None:
        self._close_stream()
        self._catalogue.close()

    # --- the stream ---------------------------------------------------------------------------

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        self._close_stream()
        with self._translated_stream(after):
            self._require_slot(after)
            connection = self._connection = self._started(after)
            tables = StreamedTables(
                self._catalogue,
                self._reader,
                capture=self._capture,
                is_captured=self._is_captured,
            )
            reading = Transactions(tables, pulse=self._pulse, keeps_lsn=self._keeps_lsn)
            with closing(reading) as transactions:
                yield from follow(
                    connection,
                    transactions,
                    lsn_from_text(after),
                    wait_seconds=lambda: self.quiet_seconds,
                )

    def _pulse(self) -> None:
        """While a transaction is read, which may take longer than the server waits."""
        if self._connection is not None:
            with translated(self._capture):
                self._connection.tell_if_due()

    def _started(self, after: str) -> ReplicationConnection:
        """A slot that is in use is tried again: its user may be a run that was killed."""
        for _ in range(SLOT_BUSY_TRIES):
            connection = ReplicationConnection(self._conninfo)
            try:
                options = self._options(connection.server_version)
                connection.start(self._slot.name, lsn_from_text(after), options)
                return connection
            except ReplicationError as error:
                connection.close()
                if error.sqlstate != IN_USE:
                    raise
            time.sleep(SLOT_BUSY_PAUSE_S)
        raise SlotBusy(capture=self._capture, slot=self._slot.name, pid=self._slot_user())

    def _options(self, server_version: int) -> dict[str, str]:
        """Version 2 streams transactions in progress; the later ones add what we do not need."""
        options = {"publication_names": f'"{self._slot.name}"'}
        if server_version >= STREAMING_SINCE:
            return options | {"proto_version": "2", "streaming": "on", "messages": "true"}
        return options | {"proto_version": "1"}

    def _require_slot(self, after: str) -> None:
        """It is there, it was not given up, and it has not been moved on by somebody else."""
        name, state = self._slot.name, self._slot.state()
        cause = _cause_of_loss(state, name, lsn_from_text(after))
        if cause is None and not self._slot.has_publication():
            cause = f"its publication {name} is gone"
        if cause is not None:
            raise SlotLost(capture=self._capture, slot=name, position=after, cause=cause)
        self._require_published()
        self._slot.make_triggers()
        self._slot.know_shapes()

    def _require_published(self) -> None:
        """A table that was dropped and made again has the old name, and is not in it."""
        published = {*self._slot.published()}
        missing = [one.full_name for one in self._facts() if one.full_name not in published]
        if missing and self._slot.has_publication():
            raise TableNotPublished(
                capture=self._capture, tables=missing, publication=self._slot.name
            )

    def _is_captured(self, table: str) -> bool:
        """By its name: a publication follows a table that is renamed, but our topics have names."""
        return split_name(table) in map(split_name, self._names)

    @contextmanager
    def _translated_stream(self, position: str) -> Iterator[None]:
        try:
            with translated(self._capture):
                yield
        except ReplicationError as error:
            self._close_stream()
            with translated(self._capture):
                raise self._meaning_of(error, position) from error

    def _meaning_of(self, error: ReplicationError, position: str) -> MillstreamError:
        """A publication that somebody makes again is of no use: the log remembers when it was not
        there."""
        if error.sqlstate in (UNDEFINED_OBJECT, NOT_IN_STATE):
            name, cause = self._slot.name, " ".join(error.message.split())
            if not self._slot.has_publication():
                cause = f"its publication {name} is gone"
            return SlotLost(capture=self._capture, slot=name, position=position, cause=cause)
        return refusal(self._capture, error.sqlstate, error.message)

    def _close_stream(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _until_slot_is_free(self) -> None:
        for _ in range(SLOT_BUSY_TRIES):
            if self._slot_user() is None:
                return
            time.sleep(SLOT_BUSY_PAUSE_S)
        raise SlotBusy(capture=self._capture, slot=self._slot.name, pid=self._slot_user())

    def _slot_user(self) -> int | None:
        state = self._slot.state()
        return None if state is None else state.pid

    def _facts(self) -> list[TableFacts]:
        return self._catalogue.tables(self._names)


def _cause_of_loss(state: SlotState | None, slot: str, after: int) -> str | None:
    if state is None:
        return f"its replication slot {slot} is gone"
    if state.wal_status == "lost" or state.restart is None:
        return (
            f"the server has given up its replication slot {slot}, as it kept too much of the log"
        )
    if state.confirmed > after:
        moved = lsn_to_text(state.confirmed)
        return f"somebody else has moved its replication slot {slot} on, to {moved}"
    return None
