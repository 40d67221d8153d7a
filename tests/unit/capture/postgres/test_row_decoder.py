"""Rows to JSON, by code that is made for a table."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.postgres import json_forms
from millstream.capture.postgres.row_decoder import BadTuple, DecodedColumn, KeyNotSent, RowDecoder
from tests.unit.capture.postgres.messages import UNSENT, tuple_of

ID = DecodedColumn("id", json_forms.of_number)
NAME = DecodedColumn("name", json_forms.of_text)
AT = DecodedColumn("at", json_forms.of_timestamptz)
ORDERS = RowDecoder([ID, NAME, AT], key=["id"], identity=["id"])
TEXTS = st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=400)


def test_a_row_is_an_object_with_its_key_apart() -> None:
    data = b"..." + tuple_of("7", "tea", "2026-01-01 12:00:00+00") + b"rest"
    found = ORDERS.row(data, 3)
    assert found is not None
    key, row, end = found
    assert key == b'{"id":7}'
    assert row == b'{"id":7,"name":"tea","at":"2026-01-01T12:00:00Z"}'
    assert data[end:] == b"rest"


def test_null_is_null() -> None:
    found = ORDERS.row(tuple_of("7", None, None), 0)
    assert found is not None
    assert found[1] == b'{"id":7,"name":null,"at":null}'


@pytest.mark.parametrize("size", [255, 256, 65_536])
def test_a_text_of_any_length_is_read(size: int) -> None:
    found = ORDERS.row(tuple_of("7", "x" * size, None), 0)
    assert found is not None
    assert len(json.loads(found[1])["name"]) == size


def test_a_row_with_a_value_that_was_not_sent_is_read_part_by_part() -> None:
    data = tuple_of("7", UNSENT, None)
    assert ORDERS.row(data, 0) is None
    parts, end = ORDERS.parts(data, 0)
    assert (parts, end) == ([b"7", None, b"null"], len(data))
    assert ORDERS.row_of(parts) == b'{"id":7,"at":null}'
    assert ORDERS.key_of(parts) == b'{"id":7}'
    assert ORDERS.unavailable(parts) == ("name",)


def test_a_key_that_was_not_sent_is_told_with_the_way_out() -> None:
    parts, _ = ORDERS.parts(tuple_of(UNSENT, "tea", None), 0)
    with pytest.raises(KeyNotSent, match=r"\(id\).*REPLICA IDENTITY FULL"):
        ORDERS.key_of(parts)


def test_of_an_old_key_only_the_identity_is_told() -> None:
    found = ORDERS.identity(tuple_of("7", None, None), 0)
    assert found is not None
    assert found[:2] == (b'{"id":7}', b'{"id":7}')


def test_a_table_without_a_key_has_none() -> None:
    found = RowDecoder([NAME], key=[], identity=[]).row(tuple_of("tea"), 0)
    assert found is not None
    assert found[0] is None


def test_a_row_of_another_table_is_refused() -> None:
    with pytest.raises(BadTuple, match="2 columns for a table of 3"):
        ORDERS.row(tuple_of("1", "2"), 0)
    with pytest.raises(BadTuple):
        ORDERS.parts(tuple_of("1", "2"), 0)


def test_names_of_columns_may_be_anything() -> None:
    names = ['a"b', "%s", "{}", "é", "end\\", "c0", "a b"]
    decoder = RowDecoder(
        [DecodedColumn(name, json_forms.of_number) for name in names], names, names
    )
    found = decoder.row(tuple_of(*map(str, range(7))), 0)
    assert found is not None
    assert list(json.loads(found[1]).items()) == list(zip(names, range(7), strict=True))
    assert found[0] == found[1]


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_copied_line_has_the_bytes_of_a_streamed_row(values: list[str | None]) -> None:
    columns = [DecodedColumn(f"c{number}", json_forms.of_text) for number in range(len(values))]
    decoder = RowDecoder(columns, key=["c0"], identity=["c0"])
    found = decoder.row(tuple_of(*values), 0)
    assert found is not None
    assert decoder.line(_copied(values)) == found[:2]
    assert list(json.loads(found[1]).values()) == values


def _copied(values: list[str | None]) -> bytes:
    """As COPY writes a row."""
    special = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
               "\v": "\\v"}  # fmt: skip
    words = [
        "\\N" if one is None else "".join(special.get(letter, letter) for letter in one)
        for one in values
    ]
    return "\t".join(words).encode() + b"\n"
