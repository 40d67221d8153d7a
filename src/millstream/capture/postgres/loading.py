"""Chunks of rows, each read in one snapshot that knows which transactions it saw.

COPY writes a row as the stream does, so both go through one decoder. A chunk is read by the key,
from the last one on; a table without a key is read whole.

What a snapshot sees is told by the numbers of transactions alone: the log's order is not the order
in which transactions become visible. The table is locked against DDL before the snapshot is
taken: one that is rewritten or truncated in between would look empty to it.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from psycopg import sql

from millstream.capture.change import CapturedTable, Transaction
from millstream.capture.postgres.catalogue import Catalogue, TableFacts
from millstream.capture.postgres.copying import copied
from millstream.capture.postgres.lsn import end_of_records, lsn_from_text, lsn_to_text
from millstream.capture.postgres.refusals import Refused, TableGone, translated
from millstream.capture.postgres.relations import Described, TableReader, TopicOf
from millstream.capture.postgres.row_decoder import ReadLine, unescaped
from millstream.capture.postgres.settling import await_commits, await_writers
from millstream.capture.postgres.transactions import OWN_PREFIX
from millstream.capture.table_names import split_name
from millstream.capture.table_versions import TableVersions

# Keys that are looked at to find where the parts of a table begin: so many for each part.
SAMPLES_PER_RANGE: Final = 200
# What a page of 8 KiB holds, where the server has not counted yet.
_ROWS_PER_PAGE_GUESS: Final = 60
_XID_SPAN: Final = 1 << 32
_ESTIMATE: Final = """
SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples
                         ELSE pg_relation_size(c.oid) / 8192 * %s END), 0)::bigint
  FROM pg_class c
 WHERE c.relkind = 'r' AND (c.oid = %s OR c.oid IN (SELECT relid FROM pg_partition_tree(%s)))
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot sees: transactions below `xmax`, but those in `running`."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def from_text(cls, text: str) -> "Snapshot":
        """`10:20:10,14,15`"""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, xid: int) -> bool:
        """The stream's numbers have 32 bits: the one that is nearest is meant."""
        ahead = (xid - self.xmax) % _XID_SPAN
        whole = self.xmax + (ahead if ahead < _XID_SPAN // 2 else ahead - _XID_SPAN)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresChunk:
    table: CapturedTable
    rows: Sequence[tuple[bytes, bytes]]
    last_key: str | None
    closes_at: str
    snapshot: Snapshot

    def sees(self, transaction: Transaction) -> bool:
        return self.snapshot.sees(int(transaction.id))


class PostgresLoader:
    """Each read has a connection of its own while it lasts; they are kept for the next."""

    def __init__(
        self, conninfo: str, *, capture: str, versions: TableVersions, topic_of: TopicOf
    ) -> None:
        self._conninfo, self._capture = conninfo, capture
        self._versions, self._topic_of = versions, topic_of
        self._idle: list[Catalogue] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def rows_estimate(self, table: CapturedTable) -> int:
        with self._catalogue() as catalogue:
            return _estimate(catalogue, _facts(catalogue, table, self._capture))

    def ranges(self, table: CapturedTable, count: int) -> list[tuple[str | None, str | None]]:
        with self._catalogue() as catalogue:
            facts = _facts(catalogue, table, self._capture)
            key = self._described(catalogue, facts)[0].key  # it may have another name by now
            cuts = _cuts(catalogue, facts, key, count) if key and count > 1 else []
        return list(pairwise([None, *cuts, None]))

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> PostgresChunk:
        with self._catalogue() as catalogue:
            with _snapshot_of(catalogue, table) as (snapshot, closes_at):
                facts = _facts(catalogue, table, self._capture)
                current, decoder = self._described(catalogue, facts)
                query = chunk_query(current, facts, after, until, rows_max)
                rows, last = _copy(catalogue, query, decoder.line)
            _flush(catalogue, closes_at)
        is_last = not current.key or len(rows) < rows_max
        return PostgresChunk(
            table=current,
            rows=rows,
            last_key=None if is_last or last is None else _key_text(current, last),
            closes_at=lsn_to_text(closes_at),
            snapshot=snapshot,
        )

    def _described(self, catalogue: Catalogue, facts: TableFacts) -> Described:
        return TableReader(catalogue, self._versions, self._topic_of).describe_now(facts)

    def settle(self, is_over: Callable[[], bool]) -> None:
        with self._catalogue() as catalogue:
            await_commits(catalogue, is_over)

    def settle_table(self, table: CapturedTable, is_over: Callable[[], bool]) -> None:
        """Nobody writes to a table that is gone."""
        with self._catalogue() as catalogue:
            for facts in catalogue.tables([table.name]):
                await_writers(catalogue, facts.oid, is_over)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for catalogue in idle:
            catalogue.close()

    @contextmanager
    def _catalogue(self) -> Iterator[Catalogue]:
        """One that nobody else uses; after an error it is not used again."""
        with self._lock:
            catalogue = self._idle.pop() if self._idle else Catalogue(self._conninfo)
        try:
            with translated(self._capture):
                yield catalogue
        except BaseException:
            catalogue.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(catalogue)
                return
        catalogue.close()


def chunk_query(
    table: CapturedTable, facts: TableFacts, after: str | None, until: str | None, rows_max: int
) -> sql.Composed:
    """COPY of the columns, in the order of the key if there is one."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    chosen = sql.SQL("SELECT {} FROM {} WHERE true").format(columns, own_rows(facts))
    if table.key:
        key = _columns(table.key)
        chosen += _condition(table, after, ">") + _condition(table, until, "<=")
        chosen += sql.SQL(" ORDER BY {} LIMIT {}").format(key, sql.Literal(rows_max))
    return sql.SQL("COPY ({}) TO STDOUT").format(chosen)


def own_rows(facts: TableFacts) -> sql.Composed:
    """Those of tables that inherit from it are theirs; those of partitions are its own."""
    name = sql.Identifier(facts.schema, facts.name)
    return sql.SQL("{}" if facts.kind == "p" else "ONLY {}").format(name)


def _condition(table: CapturedTable, key: str | None, than: Literal[">", "<="]) -> sql.Composable:
    """Nothing, if there is no such bound."""
    if key is None:
        return sql.SQL("")
    given = json.loads(key)
    if len(given) != len(table.key):
        raise Refused(
            f"{table.name} got another key while it was loaded: `millstream capture reload` it"
        )
    types = {column.name: column.database_type for column in table.columns}
    values = [
        sql.SQL("{}::{}").format(sql.Literal(text), written_type(types[name]))
        for name, text in zip(table.key, given, strict=True)
    ]
    row = sql.SQL(", ").join(values)
    compared = sql.SQL(" AND ({}) > ({})" if than == ">" else " AND ({}) <= ({})")
    return compared.format(_columns(table.key), row)


def written_type(name: str) -> sql.SQL:
    """As the catalogue writes it, which is as SQL reads it: quoted where that is needed."""
    return sql.SQL(name)


def _columns(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


@contextmanager
def _snapshot_of(catalogue: Catalogue, table: CapturedTable) -> Iterator[tuple[Snapshot, int]]:
    """The snapshot, and the end of the log when it was taken: what it sees is before that."""
    connection = catalogue.connection
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    lock = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE")
    connection.execute(lock.format(sql.Identifier(*split_name(table.name))))
    asked = "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text"
    text, lsn = catalogue.ask(asked)[0]
    yield Snapshot.from_text(text), end_of_records(lsn_from_text(lsn))
    connection.execute("COMMIT")


def _copy(
    catalogue: Catalogue, query: sql.Composed, line: ReadLine
) -> tuple[list[tuple[Any, bytes]], bytes | None]:
    """The rows, and the last line as it came."""
    lines = [bytes(data) for data in copied(catalogue.connection, query)]
    return [line(one) for one in lines], lines[-1] if lines else None


def _flush(catalogue: Catalogue, closes_at: int) -> None:
    """The stream gets only what is on disk. The end of the log may be the work of a transaction
    that still runs, or of our own reading: on a quiet server nobody would write it out."""
    if catalogue.one("SELECT pg_current_wal_flush_lsn() - '0/0' >= %s", [closes_at]):
        return
    with catalogue.connection.transaction():
        catalogue.connection.execute("SET LOCAL synchronous_commit = local")
        catalogue.ask("SELECT pg_logical_emit_message(true, %s, '')", [f"{OWN_PREFIX}flush"])


def position_now(catalogue: Catalogue) -> str:
    """The end of the log, which is on disk when this returns: the stream comes to it."""
    end = end_of_records(lsn_from_text(catalogue.one("SELECT pg_current_wal_insert_lsn()::text")))
    _flush(catalogue, end)
    return lsn_to_text(end)


def _key_text(table: CapturedTable, line: bytes) -> str:
    """The key's values as PostgreSQL writes them."""
    values = dict(
        zip([column.name for column in table.columns], line[:-1].split(b"\t"), strict=True)
    )
    return json.dumps([unescaped(values[name]).decode() for name in table.key], ensure_ascii=False)


def _facts(catalogue: Catalogue, table: CapturedTable, capture: str) -> TableFacts:
    found = catalogue.tables([table.name])
    if not found:
        raise TableGone(capture=capture, message=f"{table.name} does not exist")
    return found[0]


def _estimate(catalogue: Catalogue, facts: TableFacts) -> int:
    return int(catalogue.one(_ESTIMATE, [_ROWS_PER_PAGE_GUESS, facts.oid, facts.oid]) or 0)


def _cuts(
    catalogue: Catalogue, facts: TableFacts, key: Sequence[str], count: int
) -> list[str | None]:
    """Keys that cut the table into parts of about one size, by a sample of its pages."""
    wanted = count * SAMPLES_PER_RANGE
    percent = min(100.0, 100.0 * wanted / max(1, _estimate(catalogue, facts)))
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(one)) for one in key)
    # ORDER BY takes the name of an output column first: `t.` has it mean the key, not its text.
    order = sql.SQL(", ").join(sql.Identifier("t", one) for one in key)
    query = sql.SQL("SELECT {} FROM {} t TABLESAMPLE SYSTEM ({}) ORDER BY {}").format(
        texts,
        own_rows(facts),
        sql.Literal(percent),
        order,
    )
    sample = catalogue.connection.execute(query).fetchall()
    places = [len(sample) * number // count for number in range(1, count)]
    keys = [json.dumps(sample[place], ensure_ascii=False) for place in places if sample]
    return list(dict.fromkeys(keys))
