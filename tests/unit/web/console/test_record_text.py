"""Keys, values and headers as text, whatever bytes they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.values.unfit import Unfit
from millstream.web.console.record_text import (
    HEADERS_MAX,
    HEX_BYTES_MAX,
    LINE_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    bytes_from,
    headers_from,
    in_full,
    in_line,
    matches,
)
from tests.support.console_source import record


@given(st.binary(max_size=2_000))
def test_any_bytes_are_one_line_and_a_page(found: bytes) -> None:
    assert "\n" not in in_line(found)
    assert len(in_line(found)) <= LINE_CHARACTERS_MAX
    assert in_full(found).size_bytes == len(found)


@given(st.text(min_size=1, max_size=2_000))
def test_text_is_shown_as_text_wherever_it_is_cut(text: str) -> None:
    assert "bytes:" not in in_line(text.encode("utf-8", "replace")) or "bytes:" in text


def test_json_is_set_out_in_lines_and_the_rest_is_left() -> None:
    assert in_full(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'
    assert in_full(b"{not json").text == "{not json"
    assert in_full(b"[" * 100_000).kind == "text"
    assert in_full(None).kind == "null"


def test_bytes_are_shown_in_hexadecimal() -> None:
    shown = in_full(b"\xff\x00ABC")
    assert shown.kind == "bytes"
    assert shown.text.startswith("000000  ff 00 41 42 43")
    assert shown.text.endswith("··ABC")


def test_what_is_long_is_cut_and_says_so() -> None:
    assert not in_full(b"x" * TEXT_CHARACTERS_MAX).is_cut
    assert in_full(b"x" * (TEXT_CHARACTERS_MAX + 1)).is_cut
    assert not in_full(b"\xff" * HEX_BYTES_MAX).is_cut
    assert in_full(b"\xff" * (HEX_BYTES_MAX + 1)).is_cut


def test_a_record_matches_by_key_value_and_headers() -> None:
    one = record(0, b'{"user": "Ada"}', key=b"K\xff7")
    for text in ("", "ada", "ADA", "k", "trace", "ABC"):
        assert matches(one, text), text
    assert not matches(one, "grace")
    assert not matches(record(0, None, key=None), "null")


def test_headers_are_lines_of_a_name_and_a_value() -> None:
    assert headers_from(" a: 1\r\n\r\nb:x:y") == (("a", b"1"), ("b", b"x:y"))
    with pytest.raises(Unfit, match="name: value"):
        headers_from("nothing")
    assert len(headers_from("a: 1\n" * HEADERS_MAX)) == HEADERS_MAX
    with pytest.raises(Unfit, match="at most"):
        headers_from("a: 1\n" * (HEADERS_MAX + 1))


def test_a_form_has_line_breaks_of_its_own() -> None:
    assert bytes_from("a\r\nb") == b"a\nb"
    assert bytes_from("a", is_null=True) is None
