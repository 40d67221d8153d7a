"""Whatever a writer says to do about conflicts: who follows the changes has the table's rows."""

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.unit.capture.sqlite.captured_file import (
    CapturedFile,
    captured_file,
    followed_rows,
    source_of,
    told,
)

TABLES = {
    "numbered": "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, v INTEGER, UNIQUE (v, u))",
    "text key": "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, u INTEGER UNIQUE, v INTEGER)",
    "key without case": (
        "CREATE TABLE t (id TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, u TEXT UNIQUE, v TEXT UNIQUE)"
    ),
    "without rowid": (
        "CREATE TABLE t (id TEXT, u INTEGER UNIQUE, v TEXT, PRIMARY KEY (v, id)) WITHOUT ROWID"
    ),
    "without rowid and case": (
        "CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, u INT UNIQUE, v TEXT) WITHOUT ROWID"
    ),
    "conflict clauses of its own": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT FAIL, u TEXT UNIQUE ON CONFLICT "
        "REPLACE, v TEXT NOT NULL ON CONFLICT IGNORE CHECK (v <> 'b'))"
    ),
    "rows refer to others": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, "
        "v INTEGER CHECK (v <> id) REFERENCES t (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    "a column named rowid": (
        "CREATE TABLE t (id INT PRIMARY KEY NOT NULL, u INT UNIQUE, v TEXT, rowid TEXT)"
    ),
    "columns named as ours": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, u INT UNIQUE, v TEXT, row TEXT DEFAULT 1, "
        "op TEXT DEFAULT '?', shape INT DEFAULT 1, o0 INT DEFAULT 1, n0 INT DEFAULT 1)"
    ),
    "columns named as ours, without rowid": (
        "CREATE TABLE t (id TEXT, u INTEGER UNIQUE, v TEXT, o0 INT DEFAULT 1, o2 TEXT DEFAULT 'a', "
        "op TEXT DEFAULT '?', PRIMARY KEY (v, id)) WITHOUT ROWID"
    ),
}
CLAUSES = ["OR ABORT", "OR FAIL", "OR IGNORE", "OR REPLACE", "OR ROLLBACK", ""]
WRITES = [
    "INSERT {clause} INTO t (id, u, v) VALUES ({id}, {u}, {v})",
    "INSERT {clause} INTO t (id, u, v) VALUES ({v}, {id}, {u}), ({id}, {u}, {v})",
    "INSERT {clause} INTO t (id, u, v) SELECT v, id, u FROM t WHERE id <> {id}",
    "INSERT {clause} INTO t (id, u, v) VALUES ({v}, {id}, {u}), ({id}, {u}, {v}) "
    "ON CONFLICT DO UPDATE SET v = excluded.v",
    "INSERT INTO t (id, u, v) VALUES ({id}, {u}, {v}) ON CONFLICT DO UPDATE SET u = {u}, id = {v}",
    "INSERT INTO t (id, u, v) VALUES ({id}, {u}, {v}), ({v}, {u}, {id}) ON CONFLICT DO NOTHING",
    "UPDATE {clause} t SET u = {u}, v = {v} WHERE id = {id}",
    "UPDATE {clause} t SET id = {v} WHERE u = {u}",
    "UPDATE {clause} t SET id = {id}, u = {u} WHERE v = {v}",
    "UPDATE {clause} t SET u = u + 1 WHERE id <> {id}",
    "UPDATE t SET v = {v} WHERE id = {id}",
    "DELETE FROM t WHERE u = {u}",
]
TRANSACTIONS = ["BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s"]
VALUES = ["1", "2", "3", "4", "'a'", "'A'", "'b'", "5"]
SEEDS = 4


def random_writes(chance: random.Random, count: int) -> list[str]:
    return [
        chance.choice(chance.choices([WRITES, TRANSACTIONS], [0.85, 0.15])[0]).format(
            clause=chance.choice(CLAUSES),
            id=chance.choice(VALUES),
            u=chance.choice(VALUES),
            v=chance.choice(VALUES),
        )
        for _ in range(count)
    ]


def require_same_rows(file: CapturedFile, written: list[str]) -> None:
    file.follow()
    found = sorted(followed_rows(file.changes), key=str)
    assert found == sorted(file.rows("t"), key=str), written[-5:]


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_rows_that_follow_from_the_changes_are_those_of_the_table(
    tmp_path: Path, table: str, recursive: str, seed: int
) -> None:
    """Some statements fail in the middle. The capture looks after some, and not after others."""
    chance = random.Random(seed)
    with captured_file(tmp_path / "x.db", TABLES[table], tables=["t"]) as file:
        file.execute(f"PRAGMA recursive_triggers = {recursive}", "PRAGMA foreign_keys = ON")
        writes = random_writes(chance, count=80)
        for number, write in enumerate(writes, 1):
            with suppress(sqlite3.IntegrityError, sqlite3.OperationalError):
                file.execute(write)
            if chance.random() < 0.3 and not file.writer.in_transaction:
                require_same_rows(file, writes[:number])
                file.source.confirm(file.position)
        if file.writer.in_transaction:
            file.execute("COMMIT")
        require_same_rows(file, writes)


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
def test_a_replaced_row_is_deleted_before_the_new_one_is_created(
    tmp_path: Path, recursive: str
) -> None:
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute(f"PRAGMA recursive_triggers = {recursive}")
        file.execute("INSERT INTO t VALUES (1, 'a', 7)", "INSERT INTO t VALUES (2, 'b', 8)")
        file.follow()
        file.execute("REPLACE INTO t VALUES (3, 'a', 9)")
        assert told(file.follow()) == [
            ("d", {"id": 1}, {"id": 1, "u": "a", "v": 7}, None),
            ("c", {"id": 3}, None, {"id": 3, "u": "a", "v": 9}),
        ]


def test_triggers_of_the_application_that_write_the_same_table_are_no_trouble(
    tmp_path: Path,
) -> None:
    """Its trigger comes last, so SQLite runs it first: inside of a write that is not told yet."""
    trigger = (
        "CREATE TRIGGER again AFTER INSERT ON t WHEN NEW.v < 5 BEGIN "
        "INSERT OR REPLACE INTO t VALUES (NEW.id + 100, NEW.u || NEW.v, NEW.v + 1); END"
    )
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute(trigger, "PRAGMA recursive_triggers = ON")
        for number in range(8):
            file.execute(f"INSERT OR REPLACE INTO t VALUES ({number % 3}, 'a', {number % 4})")
        file.follow()
        by_key = {(k["id"]): after for _, k, _, after in told(file.changes)}
        kept = [row for row in by_key.values() if row is not None]
        assert sorted(kept, key=str) == sorted(file.rows("t"), key=str)


TOUCH = (
    "CREATE TRIGGER touch AFTER {event} ON T BEGIN "
    "UPDATE t SET v = coalesce(v, 0) + 100 WHERE id = NEW.id; END"
)


@pytest.mark.parametrize("event", ["INSERT", "UPDATE OF u"])
def test_a_row_that_a_newer_trigger_writes_again_has_its_last_values(
    tmp_path: Path, event: str
) -> None:
    """SQLite runs the newest trigger first: ours are the newest once the capture has looked."""
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute("INSERT INTO t VALUES (1, 'a', 1)", TOUCH.format(event=event))
        file.follow()
        file.execute("INSERT INTO t VALUES (2, 'b', 2)", "UPDATE t SET u = u || 'c'")
        require_same_rows(file, [event])


def test_a_table_with_a_newer_trigger_is_loaded_again_if_it_was_written_meanwhile(
    tmp_path: Path,
) -> None:
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.follow()
        file.execute(TOUCH.format(event="INSERT"), "INSERT INTO t VALUES (2, 'b', 2)")
        file.follow()
        assert [one.reloads for one in file.transactions] == [("main.t",)]
        file.follow()
        assert len(file.transactions) == 1


def test_a_newer_trigger_cannot_hide_a_row_that_it_keeps(tmp_path: Path) -> None:
    """RAISE(FAIL) and RAISE(IGNORE) keep the row, and skip the triggers that come later."""
    raising = (
        "CREATE TRIGGER raising AFTER INSERT ON t BEGIN "
        "SELECT CASE NEW.v WHEN 1 THEN raise(FAIL, 'no') WHEN 2 THEN raise(IGNORE) END; END"
    )
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute(raising)
        file.follow()
        for row in ("(1, 'a', 1)", "(2, 'b', 2)", "(3, 'a', 1)"):
            with suppress(sqlite3.IntegrityError):
                file.execute(f"REPLACE INTO t VALUES {row}")
            require_same_rows(file, [row])
        assert [row["id"] for row in file.rows("t")] == [2, 3]


def test_triggers_of_two_captures_do_not_replace_each_other_for_ever(tmp_path: Path) -> None:
    with (
        captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file,
        closing(source_of(tmp_path / "x.db", "t", capture="other")) as other,
    ):
        other.prepare()
        file.follow()
        versions = []
        for _ in range(2):
            file.follow()
            next(other.stream(other.position_now()))
            versions.append(file.writer.execute("PRAGMA schema_version").fetchone())
        assert versions[0] == versions[1]


@pytest.mark.parametrize("kept", ["OR FAIL", "raise"])
def test_a_chunk_has_seen_the_rows_that_a_failed_statement_kept(tmp_path: Path, kept: str) -> None:
    """It ends where the changes of these rows do: none of them is handed over after the chunk."""
    clause = kept if kept == "OR FAIL" else ""
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        if kept == "raise":
            file.execute(
                "CREATE TRIGGER raising BEFORE INSERT ON t WHEN NEW.id = 3 "
                "BEGIN SELECT raise(FAIL, 'no'); END"
            )
        file.execute("INSERT INTO t VALUES (2, 'b', 2)")
        file.follow()
        with suppress(sqlite3.IntegrityError):
            file.execute(f"INSERT {clause} INTO t VALUES (1, 'a', 1), (3, 'b', 1)")
        (table,) = file.source.tables()
        chunk = file.source.loader().read(table, None, None, 10)
        assert len(chunk.rows) == 2
        assert [change.key for change in file.follow()] == [b'{"id":1}']
        assert chunk.sees(file.transactions[-1])


def test_rows_that_a_foreign_key_deletes_are_told(tmp_path: Path) -> None:
    parents = "CREATE TABLE p (id INTEGER PRIMARY KEY)"
    children = (
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p INTEGER REFERENCES p (id) ON DELETE CASCADE)"
    )
    with captured_file(tmp_path / "x.db", parents, children, tables=["p", "c"]) as file:
        file.execute("PRAGMA foreign_keys = ON", "INSERT INTO p VALUES (1)")
        file.execute("INSERT INTO c VALUES (10, 1), (11, 1)", "DELETE FROM p")
        deleted = [(change.table.name, change.key) for change in file.follow() if change.op == "d"]
        assert sorted(deleted) == [
            ("main.c", b'{"id":10}'),
            ("main.c", b'{"id":11}'),
            ("main.p", b'{"id":1}'),
        ]


def test_a_delete_of_all_rows_tells_each(tmp_path: Path) -> None:
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)", "DELETE FROM t")
        assert [change.op for change in file.follow()] == ["c", "c", "d", "d"]


def test_a_write_that_was_ignored_is_no_transaction(tmp_path: Path) -> None:
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        file.execute("INSERT INTO t VALUES (1, 'a', 1)")
        file.follow()
        before = file.position
        file.execute("INSERT OR IGNORE INTO t VALUES (1, 'b', 2)")
        assert file.follow() == []
        assert len(file.transactions) == 1
        assert file.source.is_past(file.position, before)


def test_rows_of_an_outbox_are_deleted_by_their_keys(tmp_path: Path) -> None:
    with captured_file(tmp_path / "x.db", TABLES["without rowid"], tables=["t"]) as file:
        file.execute("INSERT INTO t VALUES ('a', 1, 'x'), ('b', 2, 'x'), ('c', 3, 'y')")
        first, _, last = [change.key for change in file.follow()]
        (table,) = file.source.tables()
        file.source.delete_rows(table, [key for key in (first, last) if key is not None])
        assert [row["id"] for row in file.rows("t")] == ["b"]
        assert [change.op for change in file.follow()] == ["d", "d"]


def test_who_writes_does_not_notice_the_triggers(tmp_path: Path) -> None:
    """The number of the last row, the count of changed ones, and what RETURNING gives."""
    with captured_file(tmp_path / "x.db", TABLES["numbered"], tables=["t"]) as file:
        inserted = file.writer.execute("INSERT INTO t (u, v) VALUES ('a', 1), ('b', 2)")
        assert (inserted.lastrowid, inserted.rowcount) == (2, 2)
        assert file.writer.execute("SELECT last_insert_rowid(), changes()").fetchone() == (2, 2)
        replaced = file.writer.execute("REPLACE INTO t VALUES (1, 'b', 2) RETURNING id, u")
        assert replaced.fetchall() == [(1, "b")]
        assert file.writer.execute("UPDATE t SET v = 3").rowcount == 1
