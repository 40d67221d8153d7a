"""Tables that get other columns, go and come back, while they are captured."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from millstream.capture.source import SourceLost
from tests.unit.capture.sqlite.captured_file import CapturedFile, captured_file, source_of, told

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, amount INTEGER)"
OWN_TRIGGERS = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'orders'"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[CapturedFile]:
    with captured_file(tmp_path / "shop.db", ORDERS, tables=["orders"]) as file:
        yield file


def reloads(file: CapturedFile) -> list[str]:
    return [table for transaction in file.transactions for table in transaction.reloads]


def test_a_column_that_is_added_is_in_the_next_version(file: CapturedFile) -> None:
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    file.follow()
    file.execute("ALTER TABLE orders ADD COLUMN note TEXT")
    file.follow()
    file.execute("INSERT INTO orders VALUES (2, 'rye', 1, 'new')")
    (change,) = file.follow()
    assert change.after == b'{"id":2,"item":"rye","amount":1,"note":"new"}'
    assert (change.table.version, reloads(file)) == (2, [])


def test_rows_written_before_the_capture_saw_the_new_column_are_loaded_anew(
    file: CapturedFile,
) -> None:
    file.execute(
        "ALTER TABLE orders ADD COLUMN note TEXT", "INSERT INTO orders VALUES (1, 'tea', 1, 'new')"
    )
    (change,) = file.follow()
    assert change.after == b'{"id":1,"item":"tea","amount":1}'
    assert (change.table.version, reloads(file)) == (1, ["main.orders"])


def test_a_column_with_another_name_is_a_new_version(file: CapturedFile) -> None:
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    file.follow()
    file.execute("ALTER TABLE orders RENAME COLUMN item TO article")
    file.follow()
    file.execute("INSERT INTO orders VALUES (2, 'tea', 1)")
    (change,) = file.follow()
    assert change.after == b'{"id":2,"article":"tea","amount":1}'
    assert (change.table.version, reloads(file)) == (2, ["main.orders"])


@pytest.mark.parametrize(
    ("added", "must_reload"),
    [
        ("note TEXT", False),
        ("note TEXT DEFAULT NULL", True),  # rather than to read what a default is
        ("note TEXT DEFAULT 'none'", True),
        ("note TEXT NOT NULL DEFAULT ''", True),
        ("twice INTEGER AS (amount * 2)", True),
    ],
)
def test_a_column_that_is_not_null_in_old_rows_has_its_table_loaded_anew(
    file: CapturedFile, added: str, must_reload: bool
) -> None:
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    file.follow()
    file.execute(f"ALTER TABLE orders ADD COLUMN {added}")
    assert file.follow() == []
    assert reloads(file) == (["main.orders"] if must_reload else [])


@pytest.mark.parametrize("statement", ["DROP TABLE orders", "ALTER TABLE orders RENAME TO old"])
def test_a_table_that_goes_is_truncated_once(file: CapturedFile, statement: str) -> None:
    start = file.position
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    file.follow()
    file.execute(statement)
    assert [(change.op, change.table.name) for change in file.follow()] == [("t", "main.orders")]
    file.execute("CREATE TABLE other (id)")
    assert file.follow() == []
    file.execute(ORDERS, "INSERT INTO orders VALUES (2, 'rye', 1)")
    file.follow()
    assert reloads(file) == ["main.orders"]
    file.execute("DROP TABLE orders")
    assert [change.op for change in file.follow()] == ["t"]
    file.position = start
    assert [change.op for change in file.follow()][:2] == ["c", "t"]


def test_a_column_is_dropped_with_the_triggers_that_name_it(file: CapturedFile) -> None:
    with pytest.raises(sqlite3.OperationalError, match="_millstream_shop_"):
        file.execute("ALTER TABLE orders DROP COLUMN item")
    triggers = [name for (name,) in file.writer.execute(OWN_TRIGGERS).fetchall()]
    file.execute("BEGIN", *(f"DROP TRIGGER {name}" for name in triggers))
    file.execute("ALTER TABLE orders DROP COLUMN item", "COMMIT")
    file.follow()
    assert reloads(file) == ["main.orders"]
    file.execute("INSERT INTO orders VALUES (1, 5)")
    (change,) = file.follow()
    assert change.after == b'{"id":1,"amount":5}'


def test_a_table_that_is_made_anew_is_loaded_anew_and_captured_again(file: CapturedFile) -> None:
    """As tools migrate it: what SQLite cannot alter is copied into another table."""
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    file.follow()
    file.execute(
        "BEGIN",
        "CREATE TABLE made (id INTEGER PRIMARY KEY, item TEXT NOT NULL)",
        "INSERT INTO made SELECT id, item FROM orders",
        "DROP TABLE orders",
        "ALTER TABLE made RENAME TO orders",
        "COMMIT",
    )
    file.follow()
    assert reloads(file) == ["main.orders"]
    file.execute("UPDATE orders SET item = 'rye'")
    assert told(file.follow()) == [
        ("u", {"id": 1}, {"id": 1, "item": "tea"}, {"id": 1, "item": "rye"})
    ]


def test_a_table_that_is_gone_is_no_trouble_to_the_others(tmp_path: Path) -> None:
    other = "CREATE TABLE other (id INTEGER PRIMARY KEY)"
    with captured_file(tmp_path / "x.db", ORDERS, other, tables=["orders", "other"]) as file:
        file.execute("INSERT INTO orders VALUES (1, 'tea', 1)", "DROP TABLE orders")
        file.execute("INSERT INTO other VALUES (2)")
        assert [(change.op, change.table.name) for change in file.follow()] == [
            ("c", "main.orders"),
            ("c", "main.other"),
            ("t", "main.orders"),
        ]
        assert [table.name for table in file.source.tables()] == ["main.other"]


def test_a_change_of_another_table_makes_nothing_new(file: CapturedFile) -> None:
    file.execute("CREATE TABLE other (id)", "CREATE INDEX found ON orders (item)", "VACUUM")
    file.execute("REINDEX", "ANALYZE", "CREATE VIEW seen AS SELECT * FROM orders")
    file.execute("DROP INDEX found", "CREATE TRIGGER t AFTER INSERT ON other BEGIN SELECT 1; END")
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    (change,) = file.follow()
    assert (change.table.version, reloads(file)) == (1, [])


def test_a_reload_is_told_again_to_who_did_not_confirm_it(file: CapturedFile) -> None:
    start = file.position
    file.execute(
        "ALTER TABLE orders ADD COLUMN note TEXT", "INSERT INTO orders VALUES (1, 'tea', 1, 'new')"
    )
    file.follow()
    file.position, file.transactions = start, []
    file.follow()
    assert reloads(file) == ["main.orders"]


def test_two_captures_of_one_file_do_not_meet(file: CapturedFile) -> None:
    with closing(source_of(file.path, "orders", capture="other")) as other:
        other.prepare()
        other.drop()
    file.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
    assert [change.op for change in file.follow()] == ["c"]


def test_what_a_dropped_capture_leaves_is_nothing(file: CapturedFile) -> None:
    file.source.drop()
    found = file.writer.execute(
        "SELECT name FROM sqlite_master WHERE name LIKE '%millstream%'"
    ).fetchall()
    assert found == []
    with pytest.raises(SourceLost, match="millstream capture reload shop"):
        file.follow()
