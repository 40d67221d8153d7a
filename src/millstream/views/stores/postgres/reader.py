"""Reads a view from PostgreSQL, from any process, also while its job writes.

Every call sees the view as of one batch of its job: it is one transaction, which reads and cannot
write. `sql` is one SELECT of PostgreSQL's own, over whatever its login may read and call, for a
minute at most. Connections are kept for the next question; one that the server has closed meanwhile
is made anew.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from millstream.base.positions import Positions, positions_from
from millstream.base.schema import Schema
from millstream.views.conditions import require_limit
from millstream.views.moment_reads import MomentReads
from millstream.views.sql import SQL_SECONDS_MAX, Parameters
from millstream.views.store import BadQuestion, Row, ViewNotFound
from millstream.views.stores.postgres.catalog import (
    layout_from,
    require_format,
    rows_table,
)
from millstream.views.stores.postgres.connection import Connection, ViewBusy, connect, translated
from millstream.views.stores.postgres.driver import errors, psycopg, rows
from millstream.views.stores.postgres.questions import OwnSql, Part, Questions, own_sql

# Connections that wait for the next question; more are open only while more threads ask at once.
IDLE_MAX = 4
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
GENERATION = """
SELECT positions, format, id, generation, key::text, schema::text
FROM _millstream_views JOIN _millstream_generations USING (id)
WHERE view = %s AND CASE WHEN %s::int IS NULL THEN served ELSE generation = %s END
"""
# A login may have been given less time. Of a cursor PostgreSQL expects that a tenth is fetched.
BOUND_TIME = """
SELECT set_config('statement_timeout', CASE WHEN setting::int BETWEEN 1 AND %(ms)s THEN setting
                  ELSE %(ms)s::text END, true),
       set_config('cursor_tuple_fraction', '1', true)
FROM pg_settings WHERE name = 'statement_timeout'
"""
# Takes back also what a SELECT has set for its session.
END = "ROLLBACK"
OWN_SQL_CURSOR = "_millstream_answer"

Answer = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Known:
    """What can be asked of a table, which is known by its id, generation, key and schema."""

    table: tuple[Any, ...]
    questions: Questions


class PostgresMoment:
    """A view as of one batch of its job: what is asked of it belongs together."""

    def __init__(self, db: Connection, questions: Questions, positions: Any) -> None:
        self._db, self._questions, self._positions = db, questions, positions

    @property
    def schema(self) -> Schema:
        return self._questions.layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._questions.layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        asked = self._questions.asked_keys(keys).items()
        answers = [self._db.execute(*self._questions.by_key(*alike)) for alike in asked]
        return self._questions.placed(answers, len(keys))

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        require_limit(limit)
        return self._rows(self._questions.in_range(first, last, limit))

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        require_limit(limit)
        return self._rows(self._questions.scanned(where, order_by, limit))

    def _rows(self, question: Part) -> list[Row]:
        return [self._questions.read(row) for row in self._db.execute(*question)]

    def count(self) -> int:
        ((found,),) = self._db.execute(self._questions.count)
        return int(found)

    def position(self) -> Positions:
        return positions_from(self._positions)

    def sql(self, text: str, params: Parameters = ()) -> list[Row]:
        """One SELECT; each ? (or $name) is a parameter."""
        asked = own_sql(text, params)
        self._db.execute(BOUND_TIME, {"ms": int(SQL_SECONDS_MAX * 1000)})
        try:
            return self._answer(asked)
        except errors.QueryCanceled as error:
            raise BadQuestion(f"SQL in PostgreSQL took too long, and was ended: {error}") from error
        except (psycopg.ProgrammingError, psycopg.DataError, psycopg.InternalError) as error:
            raise BadQuestion(f"SQL in PostgreSQL, one SELECT: {error}") from error
        except psycopg.NotSupportedError as error:
            raise BadQuestion(f"SQL in PostgreSQL, one SELECT: {error}") from error

    def _answer(self, asked: OwnSql) -> list[Row]:
        """By a cursor: PostgreSQL makes one for a SELECT alone, and not for COPY or SET."""
        cursor = psycopg.RawServerCursor(self._db, OWN_SQL_CURSOR, row_factory=rows.dict_row)
        with cursor:
            return cursor.execute(asked.text, asked.values).fetchall()


class PostgresReader(MomentReads):
    """A `ViewReads`. Thread-safe, threads do not wait for one another; close it when done."""

    def __init__(
        self, url: str, *, schema: str, view: str, place: str, generation: int | None = None
    ) -> None:
        self.view, self.place = view, place
        self._url, self._schema, self._generation = url, schema, generation
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._known: Known | None = None

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        found = self._got_at_once(keys)
        return super().get_many(keys) if found is None else found

    def sql(self, text: str, params: Parameters = ()) -> list[Row]:
        with self.moment() as now:
            return now.sql(text, params)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    @contextmanager
    def moment(self) -> Iterator[PostgresMoment]:
        """What is read inside belongs together."""
        with translated(self.place), self._connected(self._begun) as db:
            facts = self._facts(db)
            if facts is None:
                raise ViewNotFound(view=self.view, place=self.place)
            positions, format, *table = facts
            require_format(format, place=self.place)
            try:
                yield PostgresMoment(db, self._questions(tuple(table)), positions)
            except errors.UndefinedTable:
                self._require_there(tuple(table))
                raise
            db.execute(END)

    def _require_there(self, table: tuple[Any, ...]) -> None:
        """A table that is gone with its view was dropped, since the catalog was read."""
        with self._connected(self._begun) as db:
            _, _, *now = self._facts(db) or (None, None)
            db.execute(END)
        if not now:
            raise ViewNotFound(view=self.view, place=self.place)
        if tuple(now) != table:
            raise ViewBusy(place=self.place, problem="the view was dropped and made anew")

    def _facts(self, db: Connection) -> Any:
        try:
            return self._asked_facts(db).fetchone()
        except errors.UndefinedTable:  # no job has claimed a view in this schema
            return None

    def _asked_facts(self, db: Connection) -> Answer:
        return db.execute(GENERATION, (self.view, self._generation, self._generation))

    def _questions(self, table: tuple[Any, ...]) -> Questions:
        known = self._known
        if known is None or known.table != table:
            id, generation, key, schema = table
            layout = layout_from(self.view, key, schema)
            self._known = known = Known(table, Questions(layout, rows_table(id, generation)))
        return known.questions

    def _got_at_once(self, keys: Sequence[Any]) -> list[Row | None] | None:
        """All of a moment in one way to the server and back, if the view is the one that was asked
        before. None if it is not, or whatever fails: then `moment` finds out."""
        known = self._known
        if known is None:
            return None
        try:
            asked = known.questions.asked_keys(keys)
            with self._connected(self._taken) as db, db.pipeline():
                db.execute(BEGIN)
                facts = self._asked_facts(db)
                answers = [db.execute(*known.questions.by_key(*alike)) for alike in asked.items()]
                db.execute("COMMIT")
        except (psycopg.Error, BadQuestion):
            return None
        is_same = (facts.fetchone() or ())[2:] == known.table
        return known.questions.placed(answers, len(keys)) if is_same else None

    # --- connections

    @contextmanager
    def _connected(self, take: Callable[[], Connection]) -> Iterator[Connection]:
        db = take()
        try:
            yield db
        except BaseException:
            db.close()  # the server forgets what was begun
            raise
        finally:
            self._put_back(db)

    def _begun(self) -> Connection:
        """A connection in a transaction of its own."""
        while (idle := self._next_idle()) is not None:
            try:
                idle.execute(BEGIN)
            except psycopg.OperationalError:  # the server was away meanwhile
                idle.close()
            else:
                return idle
        db = self._opened()
        db.execute(BEGIN)
        return db

    def _taken(self) -> Connection:
        return self._next_idle() or self._opened()

    def _next_idle(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _opened(self) -> Connection:
        return connect(self._url, self._schema, place=self.place)

    def _put_back(self, db: Connection) -> None:
        with self._lock:
            if not db.closed and len(self._idle) < IDLE_MAX:
                self._idle.append(db)
                return
        db.close()
