"""Every line of the table of PostgreSQL in docs/reference/schema_changes.md, on a real server.

All lines are one database: each has a schema of its own, with the same tables. One capture by the
log and one by triggers follow all of them at once; the topics are in memory, and must have the rows
that the tables have. A line that stops its capture has a database of its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
import pytest

from millstream.capture.change import Change, Quiet, Transaction
from millstream.capture.change_writer import ChangeWriter, KeyLost, KeyMoved
from millstream.capture.definition import CaptureDefinition
from millstream.capture.envelope import Envelope
from millstream.capture.load.loading import Loading
from millstream.capture.postgres.refusals import TableNotCaptured
from millstream.capture.postgres.slot import slot_name
from millstream.capture.postgres.source import PostgresSource
from millstream.capture.postgres_triggers.source import PostgresTriggerSource
from millstream.capture.source import Source
from tests.support.load_runner import LoadRunner, Topics
from tests.support.postgres_server import LOGICAL, PASSWORD, USER, PostgresServer, postgres_server

pytestmark = pytest.mark.full

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "schema_changes.md"
MODES: Final = ("log", "triggers")
DATABASES = count(1)
MARKS: Final = "CREATE TABLE public.marks (id int PRIMARY KEY)"
PLAIN: Final = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text, n int)",
    "INSERT INTO orders VALUES (1, 'tea', -1), (2, 'rum', 2)",
)
MOOD: Final = "CREATE TYPE mood AS ENUM ('fine', 'so so')"
PARTED: Final = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE few PARTITION OF orders FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE more (id int PRIMARY KEY, item text, n int)",
    "INSERT INTO orders VALUES (1, 'tea', 1)",
    "INSERT INTO more VALUES (51, 'rum', 2)",
)
INHERITED: Final = (
    "CREATE TABLE parent (id int PRIMARY KEY, item text, n int)",
    "CREATE TABLE orders (PRIMARY KEY (id)) INHERITS (parent)",
    "INSERT INTO orders VALUES (1, 'tea', 1)",
    "INSERT INTO parent VALUES (7, 'rum', 2)",
)


def with_column(declared: str, value: str) -> tuple[str, ...]:
    return (
        f"CREATE TABLE orders (id int PRIMARY KEY, item text, n int, {declared})",
        f"INSERT INTO orders VALUES (1, 'tea', 1, {value})",
    )


PLACE: Final = (
    "CREATE TYPE place AS (x int, y int)",
    *with_column("at place", "ROW(1, 2)"),
)
TWICE: Final = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text, n int,"
    " twice int GENERATED ALWAYS AS (n * 2) STORED)",
    "INSERT INTO orders VALUES (1, 'tea', 1)",
)
# What is there before the statement, where that is not PLAIN: by a piece of the statement.
BEFORE: Final[Mapping[str, Sequence[str]]] = {
    "kind_with_default": ("CREATE DOMAIN kind_with_default AS text DEFAULT 'usual'", *PLAIN),
    "COLUMN short ": with_column("short varchar(10)", "'abc'"),
    "COLUMN price TYPE": with_column("price numeric(10,2)", "1.25"),
    "COLUMN at TYPE": with_column("at timestamp", "'2026-01-01 12:00'"),
    "COLUMN net TYPE": with_column("net cidr", "'10.0.0.1/32'"),
    "TYPE words": ("CREATE DOMAIN words AS text", *PLAIN),
    "twice SET EXPRESSION": TWICE,
    "twice DROP EXPRESSION": TWICE,
    "TYPE mood ": (MOOD, *with_column("how mood", "'fine'")),
    "TYPE moods ": (
        "CREATE TYPE moods AS ENUM ('fine', 'so so')",
        "CREATE DOMAIN many AS moods[]",
        *with_column("how many", "'{fine,so so}'"),
    ),
    "TYPE place ": PLACE,
    "TABLE other ": (
        "CREATE TABLE other (a int, b int)",
        *with_column("of_other other", "ROW(1, 2)"),
    ),
    "TYPE of_orders": (
        "CREATE TYPE of_orders AS (id int, item text, n int)",
        "CREATE TABLE orders OF of_orders (PRIMARY KEY (id))",
        "INSERT INTO orders VALUES (1, 'tea', 1)",
    ),
    "TABLE parent ": INHERITED,
    "INTO child": (*PLAIN, "CREATE TABLE child () INHERITS (orders)"),
    "PARTITION": PARTED,
    "DROP TABLE few": PARTED,
    "SET SCHEMA": ("CREATE SCHEMA elsewhere", *PLAIN),
    "USING INDEX": (
        "CREATE TABLE orders (id int PRIMARY KEY, item text, n int NOT NULL)",
        "CREATE UNIQUE INDEX orders_nr ON orders (n)",
        "INSERT INTO orders VALUES (1, 'tea', 1)",
    ),
}


class Line(NamedTuple):
    """A line of the table: what each mode does, by its name."""

    statement: str
    outcome: Mapping[str, str]

    @property
    def before(self) -> Sequence[str]:
        found = [made for piece, made in BEFORE.items() if piece in self.statement]
        return found[0] if found else PLAIN

    @property
    def is_alone(self) -> bool:
        """One mode keeps the other from going on, or what it does from being done."""
        return not {"stops", "refused"}.isdisjoint(self.outcome.values())


def lines() -> list[Line]:
    section = PAGE.read_text().partition("## PostgreSQL")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (\w+) \| (\w+) \|", section, re.MULTILINE)
    return [Line(row[0], dict(zip(MODES, row[1:], strict=True))) for row in rows]


class NoLog:
    """Takes what a writer of changes asks of the log before it writes."""

    def make_topic(self, *_: object, **__: object) -> None: ...


class Followed(LoadRunner):
    """As a capture's runner: it stops where that stops, if a key is not what it was."""

    def __init__(self, source: Source, position: str) -> None:
        super().__init__(lambda: source, position=position, chunk_rows=100)
        self._source, self.reloads = source, set[str]()
        definition = CaptureDefinition(name="shop", url="postgresql://shop", tables=("orders",))
        envelope = Envelope(capture="shop", kind="postgresql", database="shop")
        writer: Any = NoLog()
        self._changes = ChangeWriter(definition, envelope, writer, known=(), now_ms=lambda: 0)

    @contextmanager
    def run(self) -> Iterator[Loading]:
        with super().run() as loading:
            self._stream = self._noted(self._stream)
            yield loading

    def _noted(self, stream: Iterator[Transaction | Quiet]) -> Iterator[Transaction | Quiet]:
        for step in stream:
            if isinstance(step, Transaction):
                self.reloads |= {*step.reloads}
            yield step

    def step(self, loading: Loading) -> None:
        written = len(self.topics.changes)
        super().step(loading)
        for change in self.topics.changes[written:]:
            self._changes.know(change.table)

    def catch_up(self, loading: Loading, mark: int) -> None:
        """All up to this row of `marks`, and all loads."""
        key = b'{"id":%d}' % mark
        if isinstance(self._source, PostgresTriggerSource):
            self._source._care_at = 0.0  # it looks for DDL now, not when a second is over
        self.until(lambda: key in {one.key for one in self.topics.of("public.marks")}, loading)
        self.until_done(loading)


@dataclass
class Trial:
    """A database with the tables of some lines, each in a schema of its own, in both captures."""

    server: PostgresServer
    lines: Sequence[Line]

    def __post_init__(self) -> None:
        self.name = f"schemas{next(DATABASES)}"
        self.url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}/{self.name}"
        with psycopg.connect(self.server.url, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {self.name}".encode())
        self.execute(MARKS)
        for number, line in enumerate(self.lines):
            self.execute(f"CREATE SCHEMA s{number}", *line.before, schema=f"s{number}")
        self.tables = [f"s{number}.orders" for number in range(len(self.lines))]

    def execute(self, *statements: str, schema: str = "public") -> None:
        """The session's time zone is UTC, as that of many servers."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f"SET search_path = {schema}; SET TimeZone = 'UTC'".encode())
            for statement in statements:
                db.execute(statement.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            return db.execute(query.encode()).fetchall()

    def alter(self, number: int) -> None:
        """A statement at a time, as a program would: VACUUM is never one of several."""
        statement = self.lines[number].statement.replace("SCHEMA sales", f"SCHEMA s{number}")
        self.execute(*statement.split("; "), schema=f"s{number}")

    def source(self, mode: str, tables: Sequence[str] = ()) -> Source:
        made = PostgresSource if mode == "log" else PostgresTriggerSource
        return made(
            self.url,
            capture=f"{self.name}_{len(tables)}",
            tables=["marks", *(tables or self.tables)],
            topic_of=lambda name: name,
        )

    @contextmanager
    def followed(self, mode: str, tables: Sequence[str] = ()) -> Iterator[tuple[Followed, Loading]]:
        """From the first load on."""
        source = self.source(mode, tables)
        followed = Followed(source, source.prepare())
        with followed.run() as loading:
            followed.until_done(loading)
            yield followed, loading

    def mark(self) -> int:
        """After all that was done: where the stream has come to when it is handed over."""
        with psycopg.connect(self.url, autocommit=True) as db:
            asked = "INSERT INTO marks SELECT coalesce(max(id), 0) + 1 FROM marks RETURNING id"
            found = db.execute(asked).fetchone()
        assert found is not None
        return int(found[0])

    def rows(self, mode: str) -> dict[str, dict[bytes, bytes]]:
        """Of each table, as a load reads them now."""
        with closing(self.source(mode)) as source, closing(source.loader()) as loader:
            return {
                table.name: dict(loader.read(table, None, None, 1000).rows)
                for table in source.tables()
            }


def in_topic(changes: Sequence[Change]) -> dict[bytes, bytes]:
    topics = Topics()
    topics.changes = list(changes)
    return topics.rows()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


def test_the_page_has_lines_and_every_table_made_beforehand_is_used() -> None:
    found = lines()
    assert len(found) == len({line.statement for line in found}) > 40
    unused = [piece for piece in BEFORE if not any(piece in line.statement for line in found)]
    assert unused == []


def test_the_topic_has_what_an_altered_table_has_and_only_some_are_loaded_again(
    server: PostgresServer,
) -> None:
    trial = Trial(server, [line for line in lines() if not line.is_alone])
    with trial.followed("log") as log, trial.followed("triggers") as triggers:
        both = {"log": log, "triggers": triggers}
        for number in range(len(trial.lines)):
            trial.alter(number)
        mark = trial.mark()
        differing = []
        for mode, (followed, loading) in both.items():
            followed.catch_up(loading, mark)
            rows = trial.rows(mode)
            for number, line in enumerate(trial.lines):
                table = trial.tables[number]  # which may be gone, and has no rows then
                found = _outcome(rows.get(table, {}), followed, table)
                if found != line.outcome[mode]:
                    differing.append((mode, line.statement, line.outcome[mode], found))
        assert differing == []


@pytest.mark.parametrize("mode", MODES)
def test_a_capture_that_would_write_rows_under_other_names_or_keys_stops_with_the_next_command(
    server: PostgresServer, mode: str
) -> None:
    trial = Trial(server, [line for line in lines() if line.is_alone])
    found = {
        line.statement: _outcome_alone(trial, mode, number)
        for number, line in enumerate(trial.lines)
    }
    assert found == {line.statement: line.outcome[mode] for line in trial.lines}


def _outcome_alone(trial: Trial, mode: str, number: int) -> str:
    table = trial.tables[number]
    with trial.followed(mode, [table]) as (followed, loading):
        try:
            trial.alter(number)
            followed.catch_up(loading, trial.mark())
            found = _outcome(trial.rows(mode)[table], followed, table)
        except psycopg.Error:
            found = "refused"
        except (KeyMoved, KeyLost, TableNotCaptured):  # each says which command is next
            found = "stops"
    with closing(trial.source(mode, [table])) as source:
        source.drop()
    return found


def _outcome(rows: Mapping[bytes, bytes], followed: Followed, table: str) -> str:
    """`keeps` leaves out columns that are null or gone, as a reader does."""
    changes = [one for one in followed.topics.changes if one.table.name == table]
    found = in_topic(changes)
    is_loaded = table in followed.reloads
    if rows == found:
        return "reload" if is_loaded else "keeps"
    if not is_loaded and as_read(rows, rows) == as_read(found, rows):
        return "keeps"
    return f"{found} instead of {rows}"


def as_read(rows: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> dict[bytes, Any]:
    """With the columns of the table, null where a record has none."""
    columns = {name for row in wanted.values() for name in json.loads(row)}
    return {key: {name: json.loads(row).get(name) for name in columns} for key, row in rows.items()}


# --- what is made in the database -------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_start_replaces_what_an_older_release_made_and_finds_what_it_did_not_see(
    server: PostgresServer, mode: str
) -> None:
    trial = Trial(server, [Line("ALTER TABLE orders ADD COLUMN price int DEFAULT 5", {})])
    (table,) = trial.tables
    schema = slot_name(f"{trial.name}_1")
    with trial.followed(mode, [table]) as (followed, _):
        pass
    if mode == "log":
        trial.execute("ALTER EVENT TRIGGER millstream_altered DISABLE")
    else:
        trial.execute(
            f"CREATE OR REPLACE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RETURN NULL; END'"
        )
    trial.alter(0)
    source = trial.source(mode, [table])
    followed = Followed(source, followed.position)
    with followed.run() as loading:
        followed.until_done(loading)
        followed.catch_up(loading, trial.mark())
        assert _outcome(trial.rows(mode)[table], followed, table) == "reload"
    fired = trial.ask("SELECT evtenabled FROM pg_event_trigger")
    assert fired == ([("A",)] * 3 if mode == "log" else [])


@pytest.mark.parametrize("mode", MODES)
def test_a_check_names_children_that_are_left_out_and_tables_with_a_dot(
    server: PostgresServer, mode: str
) -> None:
    trial = Trial(server, [])
    trial.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child () INHERITS (parent)",
        'CREATE TABLE "a.b" (id int PRIMARY KEY)',
    )
    with closing(trial.source(mode, ["parent", "a.b"])) as source:
        told = {found.what: found for found in source.check()}
    children = "public.child inherit from public.parent: their rows are not captured with it"
    assert (told[children].is_fatal, told[children].mend) == (False, "--table 'public.child'")
    assert [one.mend for what, one in told.items() if "no table a.b" in what] == [
        "name it public.a.b"
    ]
