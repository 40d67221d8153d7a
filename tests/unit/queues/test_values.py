from typing import Any

import pytest

from millstream.queues.values import BadValue, ValueKind, value_from_bytes, value_to_bytes


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json", {"user": 7, "name": "Åsa", "tags": [None, True, 1.5]}),
        ("json", "text"),
        ("json", None),
        ("text", "Åsa"),
        ("bytes", b"\xff\0"),
    ],
)
def test_a_value_comes_back_as_it_was_put(kind: ValueKind, value: Any) -> None:
    assert value_from_bytes(value_to_bytes(value, kind), kind) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [("json", b"raw"), ("json", float("nan")), ("text", b"raw"), ("bytes", "text"), ("text", 7)],
)
def test_a_value_of_another_kind_is_refused_when_it_is_put(kind: ValueKind, value: Any) -> None:
    with pytest.raises(BadValue, match=kind):
        value_to_bytes(value, kind)


@pytest.mark.parametrize(("kind", "data"), [("json", b"{"), ("json", b"\xff"), ("text", b"\xff")])
def test_bytes_of_another_kind_are_refused_when_they_are_read(kind: ValueKind, data: bytes) -> None:
    with pytest.raises(BadValue, match=kind):
        value_from_bytes(data, kind)


def test_a_record_without_a_value_is_none() -> None:
    assert value_from_bytes(None, "json") is None
