"""Whatever a writer says to do about conflicts: who follows the changes has the table's rows."""

import random
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.capture.sqlite.captured_file import captured_file, followed_rows, told

TABLES = {
    "numbered": "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, v INTEGER, UNIQUE (v, u))",
    "text key": "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, u INTEGER UNIQUE, v INTEGER)",
    "key without case": (
        "CREATE TABLE t (id TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, u TEXT UNIQUE, v TEXT UNIQUE)"
    ),
    "without rowid": (
        "CREATE TABLE t (id TEXT, u INTEGER UNIQUE, v TEXT, PRIMARY KEY (v, id)) WITHOUT ROWID"
    ),
    "a column named rowid": (
        "CREATE TABLE t (id INT PRIMARY KEY NOT NULL, u INT UNIQUE, v TEXT, rowid TEXT)"
    ),
    "columns named as ours": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, u INT UNIQUE, v TEXT, row TEXT DEFAULT 1, "
        "op TEXT DEFAULT '?', shape INT DEFAULT 1, o0 INT DEFAULT 1, n0 INT DEFAULT 1)"
    ),
    "ours, without rowid": (
        "CREATE TABLE t (id TEXT, u INTEGER UNIQUE, v TEXT, o0 INT DEFAULT 1, o2 TEXT DEFAULT 'a', "
        "op TEXT DEFAULT '?', PRIMARY KEY (v, id)) WITHOUT ROWID"
    ),
}
WRITES = [
    "INSERT OR REPLACE INTO t (id, u, v) VALUES ({id}, {u}, {v})",
    "REPLACE INTO t (id, u, v) VALUES ({id}, {u}, {v}), ({v}, {id}, {u})",
    "INSERT OR IGNORE INTO t (id, u, v) VALUES ({id}, {u}, {v})",
    "INSERT OR FAIL INTO t (id, u, v) VALUES ({v}, {id}, {u}), ({id}, {u}, {v})",
    "INSERT INTO t (id, u, v) VALUES ({id}, {u}, {v})",
    "INSERT INTO t (id, u, v) VALUES ({id}, {u}, {v}) ON CONFLICT DO UPDATE SET v = {v}",
    "INSERT INTO t (id, u, v) VALUES ({id}, {u}, {v}) ON CONFLICT DO NOTHING",
    "UPDATE OR REPLACE t SET u = {u}, v = {v} WHERE id = {id}",
    "UPDATE OR REPLACE t SET id = {v} WHERE u = {u}",
    "UPDATE OR IGNORE t SET id = {id}, u = {u} WHERE v = {v}",
    "UPDATE t SET v = {v} WHERE id = {id}",
    "DELETE FROM t WHERE u = {u}",
]


def random_writes(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    values = ["1", "2", "3", "4", "'a'", "'A'", "'b'", "5"]
    return [
        chance.choice(WRITES).format(
            id=chance.choice(values), u=chance.choice(values), v=chance.choice(values)
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
@pytest.mark.parametrize("table", TABLES)
def test_the_rows_that_follow_from_the_changes_are_those_of_the_table(
    tmp_path: Path, table: str, recursive: str
) -> None:
    with captured_file(tmp_path / "x.db", TABLES[table], tables=["t"]) as file:
        file.execute(f"PRAGMA recursive_triggers = {recursive}")
        for number, write in enumerate(random_writes(seed=len(table), count=400)):
            with suppress(sqlite3.IntegrityError):
                file.execute(write)
            if number % 50 == 0:
                file.follow()
                found = sorted(followed_rows(file.changes), key=str)
                assert found == sorted(file.rows("t"), key=str), write
        file.follow()
        assert sorted(followed_rows(file.changes), key=str) == sorted(file.rows("t"), key=str)
        assert {change.op for change in file.changes} == {"c", "u", "d"}


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
