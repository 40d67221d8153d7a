"""The text of a row is read as PostgreSQL writes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.postgres_triggers.record_text import BadRecord, columns_of

SPECIAL = b'"\\(), \t\n\r\v\f'


def written(columns: list[bytes | None]) -> bytes:
    """As PostgreSQL's record_out does it."""
    return b"(" + b",".join(_written(column) for column in columns) + b")"


def _written(column: bytes | None) -> bytes:
    if column is None:
        return b""
    if column and not any(byte in SPECIAL for byte in column):
        return column
    return b'"' + column.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (b"(1,tea)", [b"1", b"tea"]),
        (b"(,)", [None, None]),
        (b'("")', [b""]),
        (b'("a ""quoted"" text",2)', [b'a "quoted" text', b"2"]),
        (b'("\\\\","(1,2)")', [b"\\", b"(1,2)"]),
        (b'("line\nline",{1})', [b"line\nline", b"{1}"]),
    ],
)
def test_columns_are_read(text: bytes, columns: list[bytes | None]) -> None:
    assert columns_of(text) == columns


@given(st.lists(st.none() | st.text(alphabet='a"\\(),\n\u20ac \x01').map(str.encode), min_size=1))
def test_any_row_is_read_as_it_was_written(columns: list[bytes | None]) -> None:
    assert columns_of(written(columns)) == columns


@pytest.mark.parametrize("text", [b'("a', b"(a", b'("a"b)'])
def test_what_is_no_row_is_refused(text: bytes) -> None:
    with pytest.raises(BadRecord, match="not the text of a row"):
        columns_of(text)
