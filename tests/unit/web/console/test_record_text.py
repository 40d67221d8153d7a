"""Keys, values and headers as text, whatever bytes they are."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.values.unfit import Unfit
from millstream.web.console.record_text import (
    HEADERS_MAX,
    HEX_BYTES_MAX,
    LINE_CHARACTERS_MAX,
    SPANS_MAX,
    TEXT_CHARACTERS_MAX,
    bytes_from,
    headers_from,
    in_full,
    in_line,
    matches,
    spans,
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


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_set_out_as_python_does_it(document: object) -> None:
    written = json.dumps([document])
    assert in_full(written.encode()).text == json.dumps([document], indent=2)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"a":1,"a":2}', '{\n  "a": 1,\n  "a": 2\n}'),
        ("[1.10000000000000000001]", "[\n  1.10000000000000000001\n]"),
        ('["\\ud800", "\\"{"]', '[\n  "\\ud800",\n  "\\"{"\n]'),
        ("[ { } , [ ] ]", "[\n  {},\n  []\n]"),
        (f"[{'9' * 5_000}]", f"[\n  {'9' * 5_000}\n]"),
    ],
)
def test_json_in_full_has_what_was_written(written: str, shown: str) -> None:
    found = in_full(written.encode())
    assert (found.kind, found.text) == ("json", shown)
    found.text.encode()


def test_json_that_is_deep_is_cut_as_it_is_set_out() -> None:
    deep = in_full(b"[" * 500 + b"1," * 40_000 + b"1" + b"]" * 500)
    assert (deep.kind, deep.is_cut, len(deep.text)) == ("json", True, TEXT_CHARACTERS_MAX)


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


def test_headers_that_cannot_be_read_match_nothing() -> None:
    one = replace(record(0, b"ada"), headers=None)
    assert matches(one, "ada")
    assert not matches(one, "trace")


def test_numbers_behind_one_another_are_a_span() -> None:
    assert spans([]) == ""
    assert spans([7, 1, 3, 2]) == "1–3, 7"
    assert spans(range(0, 2 * SPANS_MAX, 2)).count(",") == SPANS_MAX - 1
    assert spans(range(0, 2 * SPANS_MAX + 2, 2)).endswith(", …")


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
