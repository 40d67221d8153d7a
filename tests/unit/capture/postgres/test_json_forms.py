"""The text of a value to its JSON form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.postgres import json_forms
from millstream.capture.postgres.json_forms import array_form, of_text


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_any_text_reads_back_as_itself(text: str) -> None:
    assert json.loads(of_text(text.encode())) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2026-01-01 12:00:00+00", b'"2026-01-01T12:00:00Z"'),
        (b"2026-01-01 12:00:00.123456+00", b'"2026-01-01T12:00:00.123456Z"'),
        (b"0044-03-15 12:00:00+00 BC", b'"0044-03-15T12:00:00Z BC"'),
        (b"12026-01-01 12:00:00+00", b'"12026-01-01T12:00:00Z"'),
        (b"infinity", b'"infinity"'),
        (b"-infinity", b'"-infinity"'),
    ],
)
def test_a_moment_is_in_utc(text: bytes, expected: bytes) -> None:
    assert json_forms.of_timestamptz(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [(b"1e+20", b"1e+20"), (b"-0", b"-0"), (b"NaN", b'"NaN"'),
                           (b"Infinity", b'"Infinity"'), (b"-Infinity", b'"-Infinity"')],
)  # fmt: skip
def test_what_is_no_number_in_json_is_a_text(text: bytes, expected: bytes) -> None:
    assert json_forms.of_float(text) == expected


def test_bytes_are_base64() -> None:
    assert json_forms.of_bytea(b"\\x00ff10") == b'"AP8Q"'
    assert json_forms.of_bytea(b"\\x") == b'""'


ELEMENTS = st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")))


@given(ELEMENTS)
def test_an_array_of_texts_reads_back_as_itself(elements: list[str | None]) -> None:
    assert json.loads(array_form(of_text)(_written(elements))) == elements


def _written(elements: list[str | None]) -> bytes:
    """As PostgreSQL writes them, but with quotes wherever they are allowed."""
    words = [
        "NULL" if one is None else '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for one in elements
    ]
    return ("{" + ",".join(words) + "}").encode()


def test_plain_arrays_need_no_quotes() -> None:
    numbers = array_form(json_forms.of_number)
    assert numbers(b"{1,NULL,-3}") == b"[1,null,-3]"
    assert numbers(b"{}") == b"[]"


def test_other_arrays_stay_as_they_are_written() -> None:
    numbers = array_form(json_forms.of_number)
    assert numbers(b"{{1,2},{3,4}}") == b'"{{1,2},{3,4}}"'
    assert numbers(b"[0:1]={7,8}") == b'"[0:1]={7,8}"'
