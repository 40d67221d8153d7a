"""MySQL's binary JSON, against a packer that is written from its description."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.capture.mariadb.mysql_json import BadJson, json_text

DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)
INTEGERS = [(5, "<h"), (6, "<H"), (7, "<i"), (8, "<I"), (9, "<q"), (10, "<Q")]


def packed(value: Any, *, large: bool) -> tuple[int, bytes]:
    match value:
        case None | bool():
            return 4, bytes([{None: 0, True: 1, False: 2}[value]])
        case int():
            for kind, form in INTEGERS:
                try:
                    return kind, struct.pack(form, value)
                except struct.error:
                    continue
        case float():
            return 11, struct.pack("<d", value)
        case str():
            return 12, sized(value.encode())
        case dict():
            return int(large), container(list(value), list(value.values()), large=large)
        case list():
            return 2 + large, container(None, value, large=large)
    raise AssertionError(value)


def sized(data: bytes) -> bytes:
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return length + bytes([size]) + data


def container(keys: list[str] | None, values: list[Any], *, large: bool) -> bytes:
    size, form = (4, "<I") if large else (2, "<H")
    head = 2 * size + len(values) * (1 + size) + len(keys or []) * (size + 2)
    body, key_entries, value_entries = b"", b"", b""
    for key in keys or []:
        key_entries += struct.pack(form, head + len(body)) + struct.pack("<H", len(key.encode()))
        body += key.encode()
    for value in values:
        kind, data = packed(value, large=large)
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            value_entries += bytes([kind]) + data.ljust(size, b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, head + len(body))
            body += data
    whole = key_entries + value_entries + body
    return struct.pack(form, len(values)) + struct.pack(form, 2 * size + len(whole)) + whole


@given(DOCUMENTS, st.booleans())
def test_any_document_reads_back_as_itself(document: Any, large: bool) -> None:
    kind, data = packed(document, large=large)
    assert json.loads(json_text(bytes([kind]) + data)) == document


def test_a_document_is_written_as_the_server_writes_it() -> None:
    kind, data = packed({"a": [1, 2.5, "x"], "b": None}, large=False)
    assert json_text(bytes([kind]) + data) == '{"a": [1, 2.5, "x"], "b": null}'


@pytest.mark.parametrize(
    ("column_type", "data", "text"),
    [
        (246, b"\x04\x02\x8c\x22", "12.34"),
        (10, struct.pack("<q", (2026 * 13 + 12) << 46 | 31 << 41), '"2026-12-31"'),
        (
            12,
            struct.pack("<q", (2026 * 13 + 1) << 46 | 2 << 41 | (3 << 12 | 4 << 6 | 5) << 24 | 6),
            '"2026-01-02 03:04:05.000006"',
        ),
        (11, struct.pack("<q", -((100 << 12) << 24)), '"-100:00:00.000000"'),
        (252, b"\x00\xff", '"base64:type252:AP8="'),
    ],
)
def test_values_that_json_has_not_are_texts(column_type: int, data: bytes, text: str) -> None:
    assert json_text(bytes([15, column_type]) + sized(data)) == text


@pytest.mark.parametrize("document", [b"\x0c\x05ab"[:2], b"\x63", b"\x00\x01"])
def test_bytes_that_are_no_document_are_refused(document: bytes) -> None:
    with pytest.raises(BadJson):
        json_text(document)


def test_no_bytes_are_null() -> None:
    assert json_text(b"") == "null"
