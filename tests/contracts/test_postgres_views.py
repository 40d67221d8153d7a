"""Views in PostgreSQL, against a real server: the contract, and what only PostgreSQL has."""

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from itertools import count
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millstream.base.errors import Retryable
from millstream.base.ports import BatchReceipt, Fenced
from millstream.schemas.declaration import schema_of
from millstream.views.conditions import are_met, conditions_of, rank, value_at
from millstream.views.receipts import OwnedByAnother
from millstream.views.store import BadQuestion, ViewNotFound, ViewReads
from millstream.views.stores.postgres import connection as postgres_connection
from millstream.views.stores.postgres import reader as postgres_reader
from millstream.views.stores.postgres.catalog import NameTaken
from millstream.views.stores.postgres.connection import (
    Connection,
    ServerAway,
    ServerFull,
    ServerRefused,
    Unstorable,
    ViewBusy,
    ViewDamaged,
)
from millstream.views.stores.postgres.reader import PostgresReader
from millstream.views.stores.postgres.staging import PartLost
from millstream.views.stores.postgres.store import PostgresStore, PostgresView
from millstream.views.stores.postgres.values import CharacterZero
from millstream.views.table_layout import BadView, view_layout
from tests.contracts.view_store_contract import (
    COUNTS,
    OpenStore,
    StoreContract,
    Write,
    changes,
    receipt,
    rows,
)
from tests.support.breaking_proxy import BreakingProxy
from tests.support.postgres_server import PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

SCHEMAS = count(1)
WAIT_S = 60.0
CHANGED = f"{COUNTS}, _change STRING"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def schema() -> str:
    return f"views {next(SCHEMAS)}"


class Place:
    """One schema of the server."""

    def __init__(self, url: str, schema: str) -> None:
        self.url, self.schema = url, schema
        self._writers: list[PostgresView] = []

    def store(self, *key: str, view: str = "counts") -> PostgresStore:
        return PostgresStore(self.url, schema=self.schema, view=view, key=key or ("url",))

    def claimed(
        self, ddl: str = COUNTS, *key: str, generation: int = 1
    ) -> tuple[PostgresView, int]:
        writer = self.writer(*key, generation=generation)
        return writer, writer.claim("counts", schema_of(ddl))

    def writer(self, *key: str, view: str = "counts", generation: int = 1) -> PostgresView:
        self._writers.append(self.store(*key, view=view).writer(generation))
        return self._writers[-1]

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        """As a person does, with PostgreSQL's own tools."""
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f'SET search_path TO "{self.schema}"')
            found = db.execute(text.encode())
            return found.fetchall() if found.description else []

    def counts(self) -> dict[str, int]:
        with self.store().reader() as reader:
            return {row["url"]: row["count"] for row in reader.scan()}

    def tables(self, like: str) -> list[tuple[Any, ...]]:
        return self.ask(
            f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '{like}'"
            f" AND relnamespace = '\"{self.schema}\"'::regnamespace"
        )


@pytest.fixture
def place(server: PostgresServer, schema: str) -> Iterator[Place]:
    with closing(Place(server.url, schema)) as place:
        yield place


class TestPostgres(StoreContract):
    @pytest.fixture
    def store(self, place: Place) -> OpenStore:
        return lambda *, key, view="counts": place.store(*key, view=view)

    @pytest.mark.xfail(strict=True, raises=CharacterZero, reason="PostgreSQL has no such text")
    def test_a_text_may_hold_any_character(self, write: Write, reader: ViewReads) -> None:
        super().test_a_text_may_hold_any_character(write, reader)


# --- a server that goes away ------------------------------------------------------------------


def test_a_batch_waits_for_a_server_that_comes_back(server: PostgresServer, place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    with place.store().reader() as reader:
        assert reader.count() == 1
        server.stop()
        try:
            with pytest.raises(ServerAway, match="PostgreSQL is not to be reached"):
                writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
            with pytest.raises(ServerAway):
                reader.count()
        finally:
            server.start()
        assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2), ("/a", 1)))
        assert reader.count() == 2


def test_a_server_that_was_away_between_two_batches_is_not_noticed(
    server: PostgresServer, place: Place
) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    server.stop()
    server.start()
    assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
    assert place.counts() == {"/": 2}


def test_a_reader_does_not_notice_a_server_that_was_away(
    server: PostgresServer, place: Place
) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    with place.store().reader() as reader:
        assert reader.get("/") == {"url": "/", "count": 1}
        for ask in (lambda: [reader.get("/")], reader.scan):
            server.stop()
            server.start()
            assert ask() == [{"url": "/", "count": 1}]


def test_a_server_that_crashes_within_a_batch_keeps_nothing_of_it(
    server: PostgresServer, place: Place
) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    ((table,),) = place.tables(r"\_millstream\_rows%")
    with psycopg.connect(place.url) as other, ThreadPoolExecutor() as threads:
        other.execute(f'LOCK TABLE "{place.schema}"."{table}" IN EXCLUSIVE MODE'.encode())
        batch = receipt(epoch=epoch, batch=1)
        writing = threads.submit(writer.write, batch, rows(COUNTS, ("/", 2), ("/a", 1)))
        eventually(
            lambda: _waits_for(place, str(table)),
            what="the batch waits for the table",
            within_s=WAIT_S,
        )
        server.crash()
        try:
            with pytest.raises(ServerAway):
                writing.result(60)
        finally:
            server.start()
        other.close()
    assert place.counts() == {"/": 1}
    assert writer.write(batch, rows(COUNTS, ("/", 2), ("/a", 1)))
    assert place.counts() == {"/": 2, "/a": 1}


def _waits_for(place: Place, table: str | None) -> bool:
    """Whether somebody waits for a table, or for a row."""
    what = "transactionid IS NOT NULL" if table is None else f"relation = '{table}'::regclass"
    return bool(place.ask(f"SELECT 1 FROM pg_locks WHERE NOT granted AND {what}"))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_breaks_at_any_request_leaves_all_of_a_batch_or_nothing(
    server: PostgresServer, schema: str, when: Any
) -> None:
    proxy = BreakingProxy(("127.0.0.1", server.port))
    place = Place(server.url.replace(str(server.port), str(proxy.port)), schema)
    writer, epoch = place.claimed(CHANGED)
    writer.write(receipt(epoch=epoch, batch=0), _moved_on(0))
    last_tries = []
    for batch in range(1, 100):
        proxy.arm(requests=batch - 1, when=when)
        while (written := _tried(writer, receipt(epoch=epoch, batch=batch))) is None:
            assert _batch_seen(place) in (batch - 1, batch)
        has_broken = proxy.disarm()
        assert _batch_seen(place) == batch
        last_tries.append(written)
        if not has_broken:
            break
    assert len(last_tries) > 8, "a batch has more requests than that"
    assert last_tries.count(False) == (when == "after"), "only the answer to a commit can be lost"
    place.close()
    proxy.close()


def _moved_on(batch: int) -> pa.Table:
    return changes(
        ("/", batch, "upsert"), (f"/{batch}", 0, "upsert"), (f"/{batch - 1}", None, "delete")
    )


def _tried(writer: PostgresView, batch: BatchReceipt) -> bool | None:
    """None if it is to be tried again."""
    try:
        return writer.write(batch, _moved_on(batch.batch))
    except Retryable:
        return None


def _batch_seen(place: Place) -> int:
    """Rows and position are of this one."""
    with place.store().reader() as reader, reader.moment() as now:
        batch = now.position()["clicks"][1]
        found = {row["url"]: row["count"] for row in now.scan()}
    assert found == {"/": batch, f"/{batch}": 0}
    return batch


# --- bad input --------------------------------------------------------------------------------


def test_a_table_that_was_dropped_is_told(place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    ((table,),) = place.tables(r"\_millstream\_rows%")
    place.ask(f'DROP TABLE "{table}" CASCADE')
    with pytest.raises(ViewDamaged, match=r"does not exist.*Rebuild the view"):
        writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
    with pytest.raises(ViewDamaged, match="does not exist"):
        place.counts()
    rebuilt, epoch = place.claimed(generation=2)
    rebuilt.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 2)))
    rebuilt.serve()
    assert place.counts() == {"/": 2}


def test_a_view_that_was_dropped_under_its_job_is_told(place: Place) -> None:
    writer, epoch = place.claimed()
    place.store().drop()
    place.claimed()
    with pytest.raises(ViewDamaged, match="it was dropped since its job claimed it"):
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))


def test_a_wrong_password_is_told_without_the_password(server: PostgresServer, schema: str) -> None:
    place = Place(server.url_of("s3cret"), schema)
    with pytest.raises(ServerRefused, match="password authentication failed") as caught:
        place.claimed()
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ServerRefused, match="password authentication failed"):
        place.counts()


def test_a_database_that_is_not_there_is_told(server: PostgresServer, schema: str) -> None:
    with pytest.raises(ServerRefused, match='database "nowhere" does not exist'):
        Place(server.url.replace("/postgres", "/nowhere"), schema).claimed()


def test_names_may_have_63_bytes_and_no_more(place: Place) -> None:
    longest = "ä" * 31 + "x"
    place.writer("url", view=longest).claim("counts", schema_of(COUNTS))
    assert place.ask(f'SELECT * FROM "{longest}"') == []
    for view, column in ((longest + "y", "n"), ("counts", longest + "y"), ("counts", "s." * 32)):
        with pytest.raises(BadView, match="a name of 64 bytes; PostgreSQL takes 63"):
            place.writer("url", view=view).claim("c", schema_of(f"url STRING, `{column}` INT"))


@pytest.mark.parametrize("name", ["ctid", "xmin", "_millstream_goes"])
def test_a_column_of_postgresql_s_own_is_refused(place: Place, name: str) -> None:
    with pytest.raises(BadView, match=f"no column can be named {name}"):
        place.claimed(f"url STRING, {name} INT")


def test_a_full_disk_is_told_and_the_batch_can_be_tried_again(place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    ((table,),) = place.tables(r"\_millstream\_rows%")
    place.ask(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.count = 2 THEN RAISE 'could not extend file' USING ERRCODE = '53100'; END IF;"
        " RETURN NEW; END $$"
    )
    place.ask(
        f'CREATE TRIGGER t BEFORE INSERT ON "{table}" FOR EACH ROW EXECUTE FUNCTION full_disk()'
    )
    batch = receipt(epoch=epoch, batch=1)
    with pytest.raises(ServerFull, match="no space left"):
        writer.write(batch, rows(COUNTS, ("/a", 1), ("/", 2)))
    assert place.counts() == {"/": 1}
    place.ask(f'DROP TRIGGER t ON "{table}"')
    assert writer.write(batch, rows(COUNTS, ("/a", 1), ("/", 2)))
    assert place.counts() == {"/": 2, "/a": 1}


def test_a_key_too_long_for_the_index_is_refused(place: Place) -> None:
    writer, epoch = place.claimed()
    text = "".join(chr(Random(1).randrange(0x4E00, 0x9F00)) for _ in range(10))
    long = "".join(Random(2).choices([chr(code) for code in range(0x4E00, 0x9F00)], k=5000))
    with pytest.raises(Unstorable, match="index row"):
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, (text, 1), (long, 2)))
    assert place.counts() == {}


def test_a_year_that_postgresql_cannot_read_is_refused(place: Place) -> None:
    ddl = "id INT, at TIMESTAMP"
    writer, epoch = place.claimed(ddl, "id")
    far = pa.table(
        {"id": pa.array([1], pa.int32()), "at": pa.array([-(1 << 62)], pa.timestamp("us", "UTC"))}
    )
    with pytest.raises(Unstorable, match="timestamp"):
        writer.write(receipt(epoch=epoch, batch=0), far)


def test_a_text_with_character_zero_is_refused_at_any_depth(place: Place) -> None:
    ddl = "id INT, tags MAP<STRING, STRING>"
    writer, epoch = place.claimed(ddl, "id")
    with pytest.raises(CharacterZero, match=r"1 rows have the character U\+0000 in tags"):
        writer.write(receipt(epoch=epoch, batch=0), rows(ddl, (1, {"a": "x\x00"}), (2, {})))
    plain = rows(ddl, (1, {"a": r"\u0000"}), (2, {r"\\u0000": "\\"}))
    assert writer.write(receipt(epoch=epoch, batch=0), plain)
    with place.store("id").reader() as reader:
        assert [row["tags"] for row in reader.scan()] == [{"a": r"\u0000"}, {r"\\u0000": "\\"}]


# --- who writes -------------------------------------------------------------------------------


def test_runs_that_claim_at_once_get_an_epoch_each(place: Place) -> None:
    together = threading.Barrier(6)

    def claim(number: int) -> int:
        writer = place.writer()
        together.wait()
        return writer.claim("counts", schema_of(COUNTS))

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(claim, range(6))) == [1, 2, 3, 4, 5, 6]


def test_a_newer_run_waits_for_the_batch_of_an_older_one(place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
    ((table,),) = place.tables(r"\_millstream\_rows%")
    with psycopg.connect(place.url) as other, ThreadPoolExecutor() as threads:
        other.execute(f'LOCK TABLE "{place.schema}"."{table}" IN EXCLUSIVE MODE'.encode())
        batch = receipt(epoch=epoch, batch=1)
        writing = threads.submit(writer.write, batch, rows(COUNTS, ("/", 2)))
        eventually(
            lambda: _waits_for(place, str(table)),
            what="the batch waits for the table",
            within_s=WAIT_S,
        )
        claiming = threads.submit(place.claimed)
        eventually(
            lambda: _waits_for(place, None),
            what="the newer run waits for the batch",
            within_s=WAIT_S,
        )
        other.rollback()
        assert writing.result(60)
        newer, epoch = claiming.result(60)
    assert newer.write(receipt(epoch=epoch, batch=2), rows(COUNTS, ("/", 3)))
    with pytest.raises(Fenced):
        writer.write(receipt(epoch=epoch - 1, batch=2), rows(COUNTS, ("/", 666)))
    assert place.counts() == {"/": 3}


def test_of_two_jobs_that_claim_at_once_one_is_refused(place: Place) -> None:
    together = threading.Barrier(2)

    def claim(job: str) -> object:
        writer = place.writer()
        together.wait()
        try:
            return writer.claim(job, schema_of(COUNTS))
        except OwnedByAnother as refused:
            return refused.owner

    with ThreadPoolExecutor(2) as threads:
        assert sorted(map(str, threads.map(claim, ["a", "b"]))) in (["1", "a"], ["1", "b"])


def test_a_view_that_somebody_holds_is_busy(place: Place, monkeypatch: Any) -> None:
    place.claimed()
    place.close()
    monkeypatch.setattr(postgres_connection, "BUSY_SECONDS_MAX", 1)
    with psycopg.connect(place.url) as other:
        other.execute(f'SELECT 1 FROM "{place.schema}"._millstream_views FOR UPDATE'.encode())
        with pytest.raises(ViewBusy, match="lock timeout"):
            place.claimed()
    assert place.claimed()[1] == 2


# --- what people see with their own SQL -------------------------------------------------------


def test_a_view_is_a_table_of_typed_columns(place: Place) -> None:
    ddl = (
        "id BIGINT, name STRING, price DECIMAL(9, 2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE,"
        " x FLOAT, y DOUBLE, small TINYINT, ok BOOLEAN, raw BINARY, tags ARRAY<STRING>,"
        " w STRUCT<start: TIMESTAMP>"
    )
    place.claimed(ddl, "id")
    found = place.ask(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'counts'::regclass ORDER BY attnum"
    )
    assert dict(found) == {
        "id": "bigint",
        "name": "text",
        "price": "numeric(9,2)",
        "at": "timestamp with time zone",
        "local": "timestamp without time zone",
        "day": "date",
        "x": "real",
        "y": "double precision",
        "small": "smallint",
        "ok": "boolean",
        "raw": "bytea",
        "tags": "jsonb",
        "w": "boolean",
        "w.start": "timestamp with time zone",
    }


def test_values_in_json_are_got_by_a_cast(place: Place) -> None:
    part = "STRUCT<price: DECIMAL(9, 2), raw: BINARY, x: DOUBLE>"
    ddl = f"id INT, parts ARRAY<{part}>, m MAP<STRING, DATE>"
    parts, day = [{"price": 12, "raw": b"\xff", "x": float("nan")}], date(2026, 7, 1)
    writer, epoch = place.claimed(ddl, "id")
    writer.write(receipt(epoch=epoch, batch=0), rows(ddl, (1, parts, {"a": day})))
    found = place.ask(
        "SELECT (parts->0->>'price')::numeric * 2, (parts->0->>'raw')::bytea,"
        " (parts->0->>'x')::float8::text, (m->>'a')::date FROM counts"
    )
    assert found == [(24, b"\xff", "NaN", day)]


def test_a_float_comes_back_as_the_number_that_it_was(place: Place) -> None:
    ddl = "id INT, x FLOAT, list ARRAY<FLOAT>"
    writer, epoch = place.claimed(ddl, "id")
    table = rows(ddl, (1, 0.1, [0.1, -3e38]))
    writer.write(receipt(epoch=epoch, batch=0), table)
    with place.store("id").reader() as reader:
        assert reader.scan() == table.to_pylist()
        assert reader.scan(where={"x": table.to_pylist()[0]["x"]}) == table.to_pylist()


def test_rights_on_a_view_outlive_growth_and_rebuild(place: Place) -> None:
    place.claimed()
    role = f"analyst {place.schema}"
    place.ask(f'CREATE ROLE "{role}"')
    place.ask(f'GRANT SELECT ON counts TO "{role}"')
    for ddl, generation in (
        ("url STRING, count BIGINT, n INT", 1),
        ("url STRING, count BIGINT, n BIGINT", 1),
        ("url STRING, m INT", 2),
    ):
        grown, _ = place.claimed(ddl, generation=generation)
        grown.serve()
        asked = f"SELECT has_table_privilege('{role}', 'counts', 'SELECT')"
        assert place.ask(asked) == [(True,)], ddl
    assert place.ask("SELECT m FROM counts") == []
    place.ask(f'DROP OWNED BY "{role}"')
    place.ask(f'DROP ROLE "{role}"')


def test_views_of_others_outlive_a_rebuild_with_the_same_columns(place: Place) -> None:
    place.claimed()
    place.ask("CREATE VIEW total AS SELECT sum(count) FROM counts")
    rebuilt, epoch = place.claimed(generation=2)
    rebuilt.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 3), ("/a", 4)))
    rebuilt.serve()
    assert place.ask("SELECT * FROM total") == [(7,)]
    other, _ = place.claimed("url STRING, m INT", generation=3)
    with pytest.raises(ServerRefused, match="other objects depend on it"):
        other.serve()
    assert place.ask("SELECT * FROM total") == [(7,)]


def test_a_table_with_the_view_s_name_is_left_alone(place: Place) -> None:
    place.ask(f'CREATE SCHEMA "{place.schema}"')
    place.ask("CREATE TABLE counts (precious INT)")
    with pytest.raises(NameTaken, match="another table or view has its name"):
        place.claimed()
    assert place.ask("SELECT precious FROM counts") == []
    place.ask("DROP TABLE counts")
    place.ask("CREATE VIEW counts AS SELECT 1 AS precious")
    with pytest.raises(NameTaken, match="another table or view has its name"):
        place.claimed()


def test_a_sql_view_that_was_dropped_comes_back_with_the_next_run(place: Place) -> None:
    place.claimed()
    place.ask("DROP VIEW counts")
    place.claimed()
    assert place.ask("SELECT * FROM counts") == []


# --- questions --------------------------------------------------------------------------------


@pytest.fixture
def counted(place: Place) -> Iterator[ViewReads]:
    writer, epoch = place.claimed()
    found = (("/", 3), ("/a", 1), ("/b'; DROP TABLE x; --", 2))
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, *found))
    with place.store().reader() as reader:
        yield reader


def test_sql_takes_parameters_by_place_and_by_name(counted: Any) -> None:
    asked = "SELECT url, '?' AS mark FROM counts WHERE count > ? AND url <> ? ORDER BY 1 -- why?"
    assert counted.sql(asked, [1, "/"]) == [{"url": "/b'; DROP TABLE x; --", "mark": "?"}]
    named = "SELECT sum(count)::int AS n FROM counts WHERE count >= $least AND $least > 0"
    assert counted.sql(named, {"least": 2}) == [{"n": 5}]
    assert counted.sql("SELECT '{\"a\": 1}'::jsonb ?? 'a' AS has") == [{"has": True}]
    with pytest.raises(BadQuestion, match=r"\? has no parameter \(0 are given\)"):
        counted.sql("SELECT * FROM counts WHERE count > ?")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DELETE FROM counts", "syntax error"),
        ("WITH gone AS (DELETE FROM counts RETURNING 1) SELECT 1", "data-modifying"),
        ("SELECT nextval('_millstream_views_id_seq')", "read-only transaction"),
        ("SELECT 1 INTO x", "INTO is not allowed"),
        ("CREATE TABLE x (n INT)", "syntax error"),
        ("COPY (SELECT 1) TO '/tmp/millstream_must_not_be'", "syntax error"),
        ("COPY (SELECT 1) TO PROGRAM 'true'", "syntax error"),
        ("SET search_path = nowhere", "syntax error"),
        ("COMMIT", "syntax error"),
        ("SELECT 1; SELECT 2", "multiple commands"),
        ("SELECT 1; COMMIT; DELETE FROM counts", "multiple commands"),
        ("SELECT set_config('transaction_read_only', 'off', false)", "read-write mode"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM nowhere", "does not exist"),
        ("SELECT 1 / 0", "division by zero"),
    ],
)
def test_sql_reads_and_cannot_write(counted: Any, text: str, problem: str) -> None:
    with pytest.raises(BadQuestion, match=problem):
        counted.sql(text)
    assert counted.count() == 3


def test_what_sql_sets_is_gone_with_its_question(counted: Any) -> None:
    counted.sql("SELECT set_config('search_path', 'pg_catalog', false)")
    assert counted.count() == 3
    assert counted.get_many(["/"]) == [{"url": "/", "count": 3}]


def test_sql_takes_its_time_and_no_more(counted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_reader, "SQL_SECONDS_MAX", 0.2)
    with pytest.raises(BadQuestion, match=r"took too long, .* due to statement timeout"):
        counted.sql("SELECT pg_sleep(60)")
    assert counted.count() == 3


def test_a_view_that_is_dropped_while_it_is_read_is_not_there(
    place: Place, counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_facts = PostgresReader._asked_facts

    def dropped_then(reader: PostgresReader, db: Connection) -> Any:
        monkeypatch.undo()
        facts = asked_facts(reader, db)
        place.store().drop()
        return facts

    monkeypatch.setattr(PostgresReader, "_asked_facts", dropped_then)
    with pytest.raises(ViewNotFound, match="view counts is not there"):
        counted.scan()


def test_values_are_never_part_of_a_statement(counted: ViewReads) -> None:
    evil = "/b'; DROP TABLE x; --"
    assert counted.get_many([evil]) == [{"url": evil, "count": 2}]
    assert counted.scan(where={"url": evil}) == [{"url": evil, "count": 2}]
    with pytest.raises(BadQuestion, match="has no column"):
        counted.scan(where={"url\" = '' OR 1=1 --": 1})
    with pytest.raises(BadQuestion, match="has no column"):
        counted.scan(order_by='url"; DROP TABLE x')


def test_answers_are_those_that_the_rules_give_in_python(place: Place) -> None:
    """Ranges and conditions over keys with nulls, texts of any script, and NaN."""
    ddl = "a STRING, b INT, x DOUBLE, s STRING"
    random = Random(7)
    some: dict[str, list[Any]] = {
        "a": [None, "", "Z", "a", "ä", "z", "\U0001f42b", "\uffee"],
        "b": [None, -1, 0, 1, 2],
        "x": [None, float("nan"), float("inf"), -0.5, 0.0],
        "s": [None, "", "Ab", "aB", "ab", "é"],
    }
    keys = [(a, b) for a in some["a"] for b in some["b"] if (a, b) != (None, None)]
    table = [(*key, random.choice(some["x"]), random.choice(some["s"])) for key in keys]
    writer, epoch = place.claimed(ddl, "a", "b")
    writer.write(receipt(epoch=epoch, batch=0), rows(ddl, *table))
    layout = view_layout("counts", schema_of(ddl), ("a", "b"))
    kept = [dict(zip(some, row, strict=True)) for row in table]
    kept.sort(key=_by(("a",), ("b",)))
    with place.store("a", "b").reader() as reader:
        assert _same(reader.scan(), kept)
        for _ in range(60):
            low, high = (random.choice([None, *keys, *((key[0],) for key in keys)]) for _ in "lh")
            assert _same(reader.range(low, high), _within(kept, low, high)), (low, high)
        for _ in range(60):
            where = _random_conditions(random, some)
            met = [row for row in kept if are_met(conditions_of(layout, where), row)]
            assert _same(reader.scan(where=where), met), where
        for name in some:
            up = sorted(kept, key=_by((name,), ("a",), ("b",)))
            assert _same(reader.scan(order_by=name), up), name


def _by(*paths: tuple[str, ...]) -> Callable[[Any], Any]:
    return lambda row: [rank(value_at(row, path)) for path in paths]


def _within(kept: list[Any], low: Any, high: Any) -> list[Any]:
    def key(row: Any, bound: Any) -> list[Any]:
        return [rank(row[name]) for name, _ in zip("ab", bound, strict=False)]

    return [
        row
        for row in kept
        if (low is None or key(row, low) >= [rank(one) for one in low])
        and (high is None or key(row, high) <= [rank(one) for one in high])
    ]


def _random_conditions(random: Random, some: dict[str, list[Any]]) -> dict[str, Any]:
    where: dict[str, Any] = {}
    for name in random.sample(sorted(some), random.randint(1, 2)):
        operator = random.choice(["", "!=", "<", "<=", ">", ">=", "in", "starts with"])
        values = some[name] if operator in ("", "!=", "in") else some[name][1:]
        if operator == "starts with" and name in "bx":
            operator = ">"
        value = random.sample(values, 2) if operator == "in" else random.choice(values)
        where[f"{name} {operator}".strip()] = value
    return where


def _same(found: list[Any], wanted: list[Any]) -> bool:
    """NaN is no number, and not equal to itself."""
    return repr(found) == repr(wanted)


def test_a_reader_follows_its_view_through_growth_and_rebuild(place: Place) -> None:
    """After so many questions that PostgreSQL has prepared the statements."""
    narrow, wide = "url STRING, n INT", "url STRING, n BIGINT"
    writer, epoch = place.claimed(narrow)
    writer.write(receipt(epoch=epoch, batch=0), rows(narrow, ("/", 1)))
    with place.store().reader() as reader:

        def asked() -> list[Any]:
            found = [[*reader.scan(), reader.get("/")] for _ in range(8)]
            assert all(one == found[0] for one in found)
            return found[0]

        assert asked() == [{"url": "/", "n": 1}] * 2
        writer, epoch = place.claimed(wide)
        writer.write(receipt(epoch=epoch, batch=1), rows(wide, ("/", 1 << 40)))
        assert asked() == [{"url": "/", "n": 1 << 40}] * 2
        for generation in (2, 3):
            rebuilt, epoch = place.claimed(narrow, generation=generation)
            batch = receipt(epoch=epoch, batch=0, query=f"{generation}")
            rebuilt.write(batch, rows(narrow, ("/", generation)))
            rebuilt.serve()
            assert asked() == [{"url": "/", "n": generation}] * 2
        place.store().drop()
        other = place.writer("n", view="counts")
        epoch = other.claim("counts", schema_of(narrow))
        other.write(receipt(epoch=epoch, batch=0), rows(narrow, ("/", 9)))
        assert reader.get(9) == {"url": "/", "n": 9}


def test_a_reader_sees_one_batch_while_the_job_writes(place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 0), ("/a", 0)))
    with place.store().reader() as reader, reader.moment() as now:
        assert now.position() == {"clicks": {0: 10, 1: 0}}
        writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 1), ("/a", 1)))
        assert now.position() == {"clicks": {0: 10, 1: 0}}
        assert now.scan(where={"count": 0}) == now.scan()
        assert reader.scan(where={"count": 1}) == reader.scan()


def test_threads_read_side_by_side_while_the_job_writes(place: Place) -> None:
    writer, epoch = place.claimed()
    writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 0), ("/a", 0)))
    with place.store().reader() as reader, ThreadPoolExecutor(6) as threads:

        def ask(number: int) -> bool:
            keys = ["/", "/a"] if number % 2 else ["/a", "/nowhere", "/"]
            found = [row["count"] for row in reader.get_many(keys) if row is not None]
            counts = [row["count"] for row in reader.scan()]
            return len(found) == len(counts) == 2 and len({*found}) == len({*counts}) == 1

        asked = threads.map(ask, range(120))
        for batch in range(1, 20):
            table = rows(COUNTS, ("/", batch), ("/a", batch))
            writer.write(receipt(epoch=epoch, batch=batch), table)
        assert all(asked)


def test_a_commit_waits_for_the_disk_where_others_do_not(place: Place) -> None:
    hasty = Place(f"{place.url}?options=-c%20synchronous_commit%3Doff", place.schema)
    assert hasty.ask("SHOW synchronous_commit") == [("off",)]
    with hasty.store().connect() as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)


# --- large batches, in parts ------------------------------------------------------------------


def _stage(writer: PostgresView, batch: Any, *parts: pa.Table) -> list[Any]:
    """As executors do: what goes there and comes back is pickled."""
    staging = pickle.loads(pickle.dumps(writer.staging(batch)))
    return [
        pickle.loads(pickle.dumps(staging.stage(number, iter(part.to_batches()))))
        for number, part in enumerate(parts)
    ]


def test_parts_of_a_batch_are_applied_at_once(place: Place) -> None:
    writer, epoch = place.claimed(CHANGED)
    first = receipt(epoch=epoch, batch=0)
    facts = _stage(writer, first, changes(("/", 1, "upsert"), ("/", 2, "upsert")), changes())
    facts += _stage(writer, first, changes(("/a", 1, "upsert"), ("/b", 1, "upsert")))
    assert place.counts() == {}
    assert writer.commit(first, facts)
    assert place.counts() == {"/": 2, "/a": 1, "/b": 1}
    second = receipt(epoch=epoch, batch=1)
    facts = _stage(writer, second, changes(("/", 3, "upsert")), changes(("/a", None, "delete")))
    assert writer.commit(second, facts)
    assert place.counts() == {"/": 3, "/b": 1}
    with place.store().reader() as reader:
        assert reader.position() == {"clicks": {0: 10, 1: 1}}
    assert place.tables(r"\_millstream\_staged%") == []


def test_a_batch_in_parts_is_applied_once(place: Place) -> None:
    writer, epoch = place.claimed(CHANGED)
    batch = receipt(epoch=epoch, batch=0)
    assert writer.commit(batch, _stage(writer, batch, changes(("/", 1, "upsert"))))
    assert not writer.commit(batch, _stage(writer, batch, changes(("/", 2, "upsert"))))
    assert not writer.write(batch, changes(("/", 3, "upsert")))
    assert place.counts() == {"/": 1}
    assert place.tables(r"\_millstream\_staged%") == []


def test_a_part_that_is_staged_twice_counts_once(place: Place) -> None:
    writer, epoch = place.claimed(CHANGED)
    batch = receipt(epoch=epoch, batch=0)
    _stage(writer, batch, changes(("/", 1, "upsert"), ("/lost", 1, "upsert")))
    assert writer.commit(batch, _stage(writer, batch, changes(("/", 1, "upsert"))))
    assert place.counts() == {"/": 1}


def test_what_a_killed_run_has_staged_goes_with_the_next_claim(place: Place) -> None:
    writer, epoch = place.claimed(CHANGED)
    batch = receipt(epoch=epoch, batch=0)
    facts = _stage(writer, batch, changes(("/", 1, "upsert")))
    assert len(place.tables(r"\_millstream\_staged%")) == 1
    place.claimed(CHANGED)
    assert place.tables(r"\_millstream\_staged%") == []
    with pytest.raises(Fenced):
        writer.commit(batch, facts)


def test_parts_that_a_crash_of_the_server_emptied_are_not_taken_for_whole(
    server: PostgresServer, place: Place
) -> None:
    writer, epoch = place.claimed(CHANGED)
    batch = receipt(epoch=epoch, batch=0)
    facts = _stage(writer, batch, changes(("/", 1, "upsert")))
    server.crash()
    server.start()
    with pytest.raises(PartLost, match="has 0 of the 1 rows that were staged"):
        writer.commit(batch, facts)
    assert writer.commit(batch, _stage(writer, batch, changes(("/", 1, "upsert"))))
    assert place.counts() == {"/": 1}


def test_the_null_parts_of_keys_go_as_well_in_a_large_batch(place: Place) -> None:
    ddl = "a INT, b INT, n INT, _change STRING"
    writer, epoch = place.claimed(ddl, "a", "b")
    found = [(a, b, 0, "upsert") for a in (None, 1, 2) for b in (None, 1, 2) if a or b]
    writer.write(receipt(epoch=epoch, batch=0), rows(ddl, *found))
    going = [(None, 1, None, "delete"), (1, None, None, "delete"), (2, 2, None, "delete")]
    batch = receipt(epoch=epoch, batch=1)
    assert writer.commit(batch, _stage(writer, batch, rows(ddl, *going)))
    with place.store("a", "b").reader() as reader:
        left = [(row["a"], row["b"]) for row in reader.scan()]
    assert left == [(1, 1), (1, 2), (2, 1), (2, None), (None, 2)]
