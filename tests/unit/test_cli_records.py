import json

import pytest

from millstream.commands.records import (
    BadFormat,
    BadInput,
    IncomingRecord,
    LineReader,
    OutgoingRecord,
    line_writer,
    to_json_line,
)

JSON_LINES = LineReader(json_lines=True)


def incoming(
    key: bytes | None = b"ada",
    value: bytes | None = b"hello",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> IncomingRecord:
    return IncomingRecord(
        topic="clicks",
        partition=2,
        offset=7,
        timestamp_ms=1_782_907_200_007,
        key=key,
        value=value,
        headers=headers,
    )


def test_a_line_is_a_value() -> None:
    assert LineReader().read(b"hello", 1) == OutgoingRecord(key=None, value=b"hello")


def test_a_line_is_cut_at_its_first_separator() -> None:
    record = LineReader(key_separator=b":").read(b"ada:http://x", 1)
    assert (record.key, record.value) == (b"ada", b"http://x")


def test_a_line_without_its_separator_is_told_by_number() -> None:
    with pytest.raises(BadInput, match=r"Line 3: .*':'"):
        LineReader(key_separator=b":").read(b"ada", 3)


def test_what_holds_for_every_record_is_added() -> None:
    reader = LineReader(key=b"k", headers=(("h", b"1"),), partition=4)
    assert reader.read(b"v", 1) == OutgoingRecord(
        key=b"k", value=b"v", headers=(("h", b"1"),), partition=4
    )


@pytest.mark.parametrize(
    "record",
    [
        incoming(),
        incoming(key=None, value=None),
        incoming(key=b"", value=b"\xff\x00", headers=(("a", b"1"), ("a", b"\xfe"), ("b", None))),
        incoming(value='{"value_base64": "grüße"}'.encode()),
    ],
)
def test_what_consume_prints_produce_takes_without_loss(record: IncomingRecord) -> None:
    sent = JSON_LINES.read(to_json_line(record), 1)
    assert sent == OutgoingRecord(
        key=record.key,
        value=record.value,
        headers=record.headers,
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
    )


def test_bytes_that_are_not_text_are_marked() -> None:
    printed = json.loads(to_json_line(incoming(value=b"\xff")))
    assert "value" not in printed
    assert printed["value_base64"] == "/w=="


def test_a_value_that_is_not_text_is_sent_as_json() -> None:
    assert JSON_LINES.read(b'{"value": {"x": [1, null]}}', 1).value == b'{"x": [1, null]}'


def test_headers_may_be_a_plain_object() -> None:
    assert JSON_LINES.read(b'{"headers": {"a": "1"}}', 1).headers == (("a", b"1"),)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"valeu": 1}',
        b'{"partition": -1}',
        b'{"partition": "0"}',
        b'{"partition": true}',
        b'{"timestamp": "noon"}',
        b'{"timestamp": 1.5}',
        b'{"timestamp": -1}',
        b'{"value_base64": "?"}',
        b'{"headers": [1]}',
        b'{"headers": [{"value": "1"}]}',
        b'{"headers": 1}',
    ],
)
def test_a_bad_line_is_told_and_never_a_traceback(line: bytes) -> None:
    with pytest.raises(BadInput, match="Line 9: "):
        JSON_LINES.read(line, 9)


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("value", b"hello\n"),
        ("columns", b"2026-07-01T12:00:00.007Z  2  7  ada\thello\n"),
        ("%t/%p/%o", b"clicks/2/7\n"),
        (r"%k\t%v %%", b"ada\thello %\n"),
        ("%h", b"a=1,b=\n"),
    ],
)
def test_a_format_says_what_a_line_has(format: str, line: bytes) -> None:
    assert line_writer(format)(incoming(headers=(("a", b"1"), ("b", None)))) == line


@pytest.mark.parametrize("format", ["", "vlaue", "%x", "100%"])
def test_a_format_that_says_nothing_is_refused(format: str) -> None:
    with pytest.raises(BadFormat):
        line_writer(format)
