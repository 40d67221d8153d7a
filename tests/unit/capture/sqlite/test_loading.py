"""Every row of a table is in one chunk, whatever its key is made of."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.capture.sqlite.captured_file import CapturedFile, captured_file


def loaded(file: CapturedFile, rows_max: int) -> list[tuple[Any, bytes]]:
    (table,) = file.source.tables()
    loader = file.source.loader()
    rows: list[tuple[Any, bytes]] = []
    after: str | None = None
    while True:
        chunk = loader.read(table, after, None, rows_max)
        rows += chunk.rows
        after = chunk.last_key
        if after is None:
            return rows


@pytest.mark.parametrize(
    "columns",
    [
        "(id INTEGER PRIMARY KEY, v)",
        "(id TEXT PRIMARY KEY, v)",
        "(id NUMERIC, v, PRIMARY KEY (v, id))",
        "(id BLOB COLLATE NOCASE NOT NULL, v NOT NULL, PRIMARY KEY (id, v)) WITHOUT ROWID",
    ],
)
@pytest.mark.parametrize("rows_max", [1, 3])
def test_chunks_bring_every_row_once(tmp_path: Path, columns: str, rows_max: int) -> None:
    with captured_file(tmp_path / "x.db", f"CREATE TABLE t {columns}", tables=["t"]) as file:
        numbers = ["-9223372036854775808", "-1", "0", "7", "9223372036854775807"]
        others = ["'a'", "'B'", "x'00'", "1.5", "-9e999", "CAST(x'ff' AS TEXT)", "''"]
        for value in numbers if "INTEGER" in columns else numbers + others:
            file.execute(f"INSERT INTO t VALUES ({value}, 'x')")
        keys = [key for key, _ in loaded(file, rows_max)]
        assert len(keys) == len({*keys}) == len(file.writer.execute("SELECT 1 FROM t").fetchall())


def test_rows_without_a_value_in_their_key_are_loaded_too(tmp_path: Path) -> None:
    with captured_file(
        tmp_path / "x.db", "CREATE TABLE t (a TEXT, b INT, PRIMARY KEY (a, b))", tables=["t"]
    ) as file:
        file.execute("INSERT INTO t VALUES (NULL, 1), (NULL, 1), ('x', NULL), ('x', 1), ('y', 2)")
        assert len(loaded(file, rows_max=1)) == 5


def test_a_chunk_sees_what_was_committed_while_another_still_writes(tmp_path: Path) -> None:
    with captured_file(
        tmp_path / "x.db", "CREATE TABLE t (id INTEGER PRIMARY KEY)", tables=["t"]
    ) as file:
        file.execute("INSERT INTO t VALUES (1)", "BEGIN IMMEDIATE", "INSERT INTO t VALUES (2)")
        (table,) = file.source.tables()
        chunk = file.source.loader().read(table, None, None, 10)
        file.execute("COMMIT")
        file.follow()
        assert [chunk.sees(transaction) for transaction in file.transactions] == [True, False]
        assert [key for key, _ in chunk.rows] == [b'{"id":1}']
