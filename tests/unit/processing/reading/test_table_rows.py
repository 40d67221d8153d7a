"""Records of a changelog topic as changes of a table."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millstream.processing.reading.table_rows import TableKeys, table_changes
from millstream.schemas.ddl import schema_from_ddl
from millstream.values.decoder import Decoded
from millstream.values.json_decoder import JsonDecoder

Record = tuple[bytes | None, bytes | None]


def changes(ddl: str, key: tuple[str, ...], *records: Record) -> Decoded:
    schema = schema_from_ddl(ddl)
    values = pa.array([value for _, value in records], pa.binary())
    keys = TableKeys(schema, key).decode([key for key, value in records if value is None])
    return table_changes(JsonDecoder(schema).decode(values), keys, key, gone=pc.is_null(values))


def rows(found: Decoded) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.batch.to_pylist()]


def test_a_value_is_an_upsert_and_a_tombstone_a_delete_of_its_key() -> None:
    found = changes("id INT, name STRING", ("id",), (b"1", b'{"id":1,"name":"ada"}'), (b"1", None))
    assert rows(found) == [(1, "ada", "upsert"), (1, None, "delete")]
    assert found.bad == []


@pytest.mark.parametrize(
    ("ddl", "key", "expected"),
    [
        ("id BIGINT", b"7", 7),
        ("id BIGINT", b'{"id": 7}', 7),
        ("id STRING", b"ada", "ada"),
        ("id STRING", b'"ada"', "ada"),
        ("id STRING", b"7", "7"),
        ("id STRING", '{"id": "ø"}'.encode(), "ø"),
        ("id STRING", b"", ""),
        ("id BOOLEAN", b"true", True),
    ],
)
def test_the_key_of_one_column_is_its_plain_value_or_an_object(
    ddl: str, key: bytes, expected: object
) -> None:
    found = changes(f"{ddl}, x INT", ("id",), (key, None))
    assert (rows(found), found.bad) == ([(expected, None, "delete")], [])


def test_a_key_of_several_columns_is_an_object() -> None:
    found = changes("a INT, x INT, b STRING", ("b", "a"), (b'{"b": "z", "a": 2}', None))
    assert rows(found) == [(2, None, "z", "delete")]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "not a JSON object but null"),
        (b"ada", "not JSON"),
        (b'{"other": 1}', "id"),
        (b"\xff", "not"),
    ],
)
def test_a_tombstone_that_names_no_row_is_bad(key: bytes | None, reason: str) -> None:
    kept = (b"1", b'{"id":1}')
    found = changes("id INT, name STRING", ("id",), kept, (key, None), kept)
    (bad,) = found.bad
    assert bad.row == 1
    assert bad.reason.startswith("its key: ")
    assert reason in bad.reason


def test_a_value_without_its_whole_key_is_bad_once() -> None:
    found = changes("a INT, b INT", ("a", "b"), (b"1", b"{}"), (b"1", b'{"a":1}'), (b"1", b"no"))
    assert [bad.row for bad in found.bad] == [0, 1, 2]
    assert found.bad[0].reason == "the key column a is null"
    assert found.bad[1].reason == "the key column b is null"


def test_a_key_that_is_not_utf8_names_no_row() -> None:
    found = changes("id STRING, x INT", ("id",), (b"\xffada", None))
    assert [bad.reason for bad in found.bad] == ["its key: not UTF-8: byte 0xff at position 6"]
