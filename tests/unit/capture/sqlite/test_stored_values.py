"""Any value that SQLite stores has one JSON form."""

import json
import math
from typing import Any

import pytest

from millstream.capture.sqlite.shape import Column, Shape, type_of
from millstream.capture.sqlite.stored_values import (
    BrokenText,
    Stored,
    from_text,
    key_to_json,
    key_values,
    row_to_json,
    text_from,
    to_text,
)


def shape(*declared: str, key: tuple[str, ...] = ()) -> Shape:
    columns = tuple(Column(f"c{place}", one, True) for place, one in enumerate(declared))
    return Shape("t", columns, key, (), "rowid")


def written(declared: str, value: Stored) -> Any:
    return json.loads(row_to_json(shape(declared))([value]))["c0"]


@pytest.mark.parametrize(
    ("declared", "value", "form"),
    [
        ("INTEGER", 2**63 - 1, 2**63 - 1),
        ("INTEGER", "no number", "no number"),
        ("INTEGER", 1.5, 1.5),
        ("REAL", 0.1 + 0.2, 0.1 + 0.2),
        ("REAL", math.inf, "Infinity"),
        ("TEXT", 'a"\\\n\x00\u20ac', 'a"\\\n\x00\u20ac'),
        ("TEXT", b"\xff", {"blob": "/w=="}),
        ("TEXT", BrokenText(b"\xff"), {"not_utf8": "/w=="}),
        ("BLOB", b"\xff", "/w=="),
        ("BLOB", "abcd", {"text": "abcd"}),
        ("NUMERIC", 5, "5"),
        ("DECIMAL(5,2)", 1.25, "1.25"),
        ("NUMERIC", math.inf, "Infinity"),
        ("BOOLEAN", 1, True),
        ("BOOLEAN", 2, 2),
        ("", None, None),
    ],
)
def test_a_value_is_written_as_its_type_has_it_or_as_it_is(
    declared: str, value: Stored, form: Any
) -> None:
    assert written(declared, value) == form


def test_a_key_has_its_columns_in_its_own_order() -> None:
    to_json = key_to_json(shape("INTEGER", "TEXT", "BLOB", key=("c2", "c0")))
    assert to_json([1, "x", b"\x00"]) == b'{"c2":"AA==","c0":1}'


@pytest.mark.parametrize(
    ("declared", "value"),
    [("INTEGER", 5), ("TEXT", "x"), ("BLOB", b"x"), ("BLOB", "x"), ("BOOLEAN", 1), ("TEXT", None)],
)
def test_a_key_is_read_as_it_was_stored(declared: str, value: Stored) -> None:
    keyed = shape(declared, key=("c0",))
    (found,) = key_values(keyed, key_to_json(keyed)([value]) or b"")
    assert (found, type(found)) == (value, type(value))


def test_a_table_without_a_key_has_none() -> None:
    assert key_to_json(shape("INTEGER"))([1]) is None


@pytest.mark.parametrize(
    "value", [5, -(2**63), 0.1, math.inf, -math.inf, "", "x\0y", b"\x00\xff", BrokenText(b"\xff")]
)
def test_a_place_in_a_table_is_kept_exactly(value: Stored) -> None:
    (found,) = from_text(to_text([value]))
    assert (found, type(found)) == (value, type(value))


def test_a_text_that_is_not_utf8_stays_what_it_is() -> None:
    assert text_from(b"\xed\xa0\x80") == BrokenText(b"\xed\xa0\x80")


@pytest.mark.parametrize(
    ("declared", "type_name"),
    [
        ("INT", "BIGINT"),
        ("unsigned big int", "BIGINT"),
        ("NVARCHAR(100)", "STRING"),
        ("CLOB", "STRING"),
        ("BLOB", "BINARY"),
        ("double precision", "DOUBLE"),
        ("boolean", "BOOLEAN"),
        ("DATETIME", "STRING"),
        ("FLOATING POINT", "BIGINT"),  # SQLite's own rule: it has INT in it
    ],
)
def test_a_declared_type_is_read_as_sqlite_reads_it(declared: str, type_name: str) -> None:
    assert str(type_of(declared)) == type_name
