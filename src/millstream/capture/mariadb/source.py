"""MariaDB, or MySQL, as a change source: its binlog, from a set of GTIDs on.

The server keeps nothing for a capture: `prepare` makes nothing, `confirm` and `drop` do nothing. It
deletes its binlog by age, whether it was read or not; then the capture is lost, and says so.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Final

from millstream.capture.change import CapturedColumn, CapturedTable, Quiet, Transaction
from millstream.capture.mariadb.alterations import Alteration
from millstream.capture.mariadb.assembly import Assembly, Shapes
from millstream.capture.mariadb.binlog_dump import HEARTBEAT_S, OK, BinlogDump
from millstream.capture.mariadb.catalogue import Catalogue, CatalogueTable
from millstream.capture.mariadb.checks import findings
from millstream.capture.mariadb.connection import Address, Session
from millstream.capture.mariadb.groups import TableShape
from millstream.capture.mariadb.gtids import Position, is_past
from millstream.capture.mariadb.loading import MariadbLoader
from millstream.capture.mariadb.row_decoder import row_reader
from millstream.capture.mariadb.snapshots import begin_snapshot, is_mariadb
from millstream.capture.mariadb.statements import TableName
from millstream.capture.mariadb.table_map import MARIADB, MYSQL, read_table_map
from millstream.capture.source import Finding, Lag, SourceInterrupted
from millstream.capture.table_names import split_name
from millstream.capture.table_versions import TableVersions

QUIET_S: Final = 1.0
# Heartbeats come when nothing else does: without three of them in a row, nobody is there.
SILENT_S_MAX: Final = 3 * HEARTBEAT_S + 5


class MariadbSource:
    def __init__(
        self,
        url: str,
        *,
        capture: str,
        tables: Sequence[str],
        topic_of: Callable[[str], str],
        known: Iterable[CapturedTable] = (),
    ) -> None:
        self.kind = "mysql" if url.startswith("mysql:") else "mariadb"
        self.quiet_seconds = QUIET_S
        self._address = Address.of_url(url, capture)
        self.database = self._address.database
        self._names = [self._table_name(table) for table in tables]
        self._captured = set(self._names)
        self._topic_of = topic_of
        known = list(known)
        self._versions = TableVersions(known)
        self._known = {table.name: table for table in sorted(known, key=lambda one: one.version)}
        self._columns: dict[str, set[str]] = {}  # that rows in the topic may have
        for table in known:
            self._remember(table)
        self._latest: dict[TableName, CapturedTable] = {}  # as the stream had them last
        self._defined: dict[TableName, CapturedTable] = {}  # as they were last altered
        self._session = Session(self._address)
        self._catalogue = Catalogue(self._session)
        self._assembly: Assembly | None = None

    def _table_name(self, given: str) -> TableName:
        return TableName(*split_name(given, self.database))

    @cached_property
    def _is_mariadb(self) -> bool:
        return is_mariadb(self._session)

    @cached_property
    def _folds_case(self) -> bool:
        """Whether names of tables that differ in case alone are one name for this server."""
        found = self._session.variables("lower_case_table_names")
        return found.get("lower_case_table_names", "0") != "0"

    def check(self) -> list[Finding]:
        return findings(self._session, self._names)

    def prepare(self) -> str:
        """Where a snapshot of now is: all that later snapshots see beyond it, the stream has."""
        seen = begin_snapshot(self._session, of_mariadb=self._is_mariadb)
        self._session.rows("ROLLBACK")
        return str(Position(seen.sure, seen.sure))

    def position_now(self) -> str:
        return self.prepare()

    def tables(self) -> list[CapturedTable]:
        """Those that are there."""
        found = [self._catalogue.table(name) for name in self._names]
        return [self._version_of(table) for table in found if table is not None]

    def _version_of(self, table: CatalogueTable) -> CapturedTable:
        """It is known from now on, also if the table is dropped before a change of it comes."""
        version = self._versions.of(table.captured(self._topic_of(str(table.name))))
        self._known[version.name] = version
        self._defined.setdefault(table.name, version)
        return version

    def _loaded_version_of(self, table: CatalogueTable) -> CapturedTable:
        version = self._version_of(table)
        self._remember(version)
        return version

    def _remember(self, table: CapturedTable) -> None:
        columns = self._columns.setdefault(table.name, set())
        columns.update(column.name for column in table.columns)

    # --- the stream -------------------------------------------------------------------------

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        start = Position.parse(after)
        self._latest = {}
        self._defined = dict(self._defined_at_start())
        with closing(BinlogDump(self._address, start.read_from)) as dump:
            shapes = Shapes(
                self._shape_of_map,
                self._current,
                self._must_reload,
                lambda name: self._catalogue.table(name) is not None,
                folds_case=self._folds_case,
            )
            self._assembly = Assembly(
                start, self._captured, shapes, has_checksums=dump.has_checksums
            )
            with closing(self._assembly) as assembly:
                yield from self._followed(dump, assembly)

    def _followed(self, dump: BinlogDump, assembly: Assembly) -> Iterator[Transaction | Quiet]:
        packets = dump.packets
        quiet_at = heard_at = time.monotonic()
        while True:
            while (packet := packets.take()) is not None:
                if packet[0] != OK:
                    raise dump.refusal(packet)
                transaction = assembly.take(packet)
                if transaction is not None:
                    yield transaction
            now = time.monotonic()
            if packets.receive(0):
                heard_at = now
                if now - quiet_at < QUIET_S:
                    continue
            yield Quiet(resume=assembly.resume)
            quiet_at = time.monotonic()
            if packets.receive(self.quiet_seconds):
                heard_at = time.monotonic()
            elif quiet_at - heard_at > SILENT_S_MAX:
                raise SourceInterrupted(f"the database sent nothing for {SILENT_S_MAX} s")

    def _shape_of_map(self, body: bytes) -> TableShape:
        dialect = MARIADB if self._is_mariadb else MYSQL
        mapped = self._catalogue.undisguised(
            read_table_map(body, dialect, self._catalogue.charset_of)
        )
        name = TableName(mapped.database, mapped.table)
        table = self._versions.of(
            CapturedTable(
                name=str(name),
                topic=self._topic_of(str(name)),
                columns=tuple(
                    column.type.column(column.name, is_nullable=column.is_nullable)
                    for column in mapped.columns
                ),
                key=mapped.key,
            )
        )
        self._latest[name] = self._defined[name] = table
        self._remember(table)
        read_row = row_reader(mapped.columns, mapped.key, self._catalogue.text_decoder)
        return TableShape(table, read_row)

    def _current(self, name: TableName) -> CapturedTable | None:
        """As the binlog had it last, or a load, or a former run; or as it is now."""
        if found := self._latest.get(name) or self._known.get(str(name)):
            return found
        if defined := self._defined.get(name):
            return self._versions.of(defined)
        now = self._catalogue.table(name)
        return self._version_of(now) if now else None

    def _must_reload(self, name: TableName, alteration: Alteration) -> bool:
        """After a statement that altered it: do rows have values now that nobody was told of?

        The statement counts, and what the table is now, whichever says yes: it may have been
        altered once more since. A column that is new but for its name is null in old rows, which
        have in the topic what the former one had.
        """
        found = self._catalogue.table(name)
        before = self._defined.get(name)
        if not alteration.keeps_values or alteration.added & self._columns.get(str(name), set()):
            must_reload = True
        elif found is None or before is None:
            must_reload = False
        else:
            fills = {column.name for column in found.columns if column.fills}
            now = found.captured(self._topic_of(str(name)))
            must_reload = has_new_values(before, now, fills)
        if found is not None:
            self._defined[name] = found.captured(self._topic_of(str(name)))
        return must_reload

    def _defined_at_start(self) -> Iterator[tuple[TableName, CapturedTable]]:
        """What a former run knew; tables that none knew are to be loaded anyway."""
        for name in self._names:
            if kept := self._known.get(str(name)):
                yield name, kept
            elif found := self._catalogue.table(name):
                yield name, found.captured(self._topic_of(str(name)))

    def is_past(self, position: str, other: str) -> bool:
        return is_past(position, other)

    def confirm(self, position: str) -> None:
        """The server does not wait for anybody."""

    def add_tables(self, names: Sequence[str]) -> None:
        new = [name for name in map(self._table_name, names) if name not in self._captured]
        self._names += new
        if self._assembly is not None:
            self._assembly.add_tables(new)
        self._captured.update(new)

    # --- the rest ---------------------------------------------------------------------------

    def lag(self, position: str) -> Lag:
        """Bytes of the binlog that the stream has not yet read."""
        files = [(str(row[0]), int(row[1])) for row in self._session.rows("SHOW BINARY LOGS")]
        read = self._assembly
        if read is None or not read.file:
            return Lag(bytes=None, retained_bytes=None)
        behind = sum(size for file, size in files if file >= read.file) - read.offset
        return Lag(bytes=max(0, behind), retained_bytes=None)

    def loader(self) -> MariadbLoader:
        return MariadbLoader(self._address, self._loaded_version_of)

    def drop(self) -> None:
        """Nothing was made."""

    def close(self) -> None:
        self._session.close()


def has_new_values(before: CapturedTable, now: CapturedTable, fills: set[str]) -> bool:
    """Another type or key, a new column that is not null in old rows, or one renamed."""
    had = {column.name: column for column in before.columns}
    new = [column for column in now.columns if column.name not in had]
    gone = set(had) - {column.name for column in now.columns}
    return bool(
        any(_differs(had[column.name], column) for column in now.columns if column.name in had)
        or any(column.name in fills for column in new)
        or (new and gone)
        or before.key != now.key
    )


def _differs(former: CapturedColumn, now: CapturedColumn) -> bool:
    return former.database_type != now.database_type
