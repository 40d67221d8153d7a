"""The language of message descriptions: classes, defaults, versions."""

from __future__ import annotations

import pytest

from millstream.broker.wire.message import Message, field, versions_from


class Point(Message):
    x: int = field("int32", "0+", default=0)
    y: int = field("int32", "2+", default=-1)


class Shape(Message, api_key=7, versions="1-3", flexible="2+"):
    name: str = field("string", "0+", default="")
    points: list[Point] = field([Point], "0+", default_factory=list)
    centre: Point = field(Point, "0+", default_factory=Point)


class Batch(Message):
    records: bytes | memoryview = field("records", "0+", default=b"")


def test_what_is_left_out_has_its_default() -> None:
    assert Shape() == Shape(name="", points=[], centre=Point(x=0, y=-1))


def test_each_message_has_its_own_lists_and_structs() -> None:
    first, second = Shape(), Shape()
    first.points.append(Point())
    first.centre.x = 5
    assert second == Shape()


def test_messages_are_equal_by_value_and_class() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Point() != Shape()
    assert Point() != object()


def test_records_are_equal_by_their_bytes() -> None:
    assert Batch(records=b"abc") == Batch(records=memoryview(b"abc"))


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError):
        Point(z=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]


def test_a_message_shows_its_values_but_not_its_payload() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=-1)"
    assert repr(Batch(records=b"abc")) == "Batch(records=b'abc')"
    assert repr(Batch(records=bytes(1000))) == "Batch(records=<1000 bytes>)"


def test_a_schema_says_what_was_declared() -> None:
    schema = Shape.__schema__
    assert (schema.name, schema.api_key) == ("Shape", 7)
    assert list(schema.versions) == [1, 2, 3]
    assert 1 not in schema.flexible
    assert 2 in schema.flexible
    assert [one.name for one in schema.fields] == ["name", "points", "centre"]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("0+", [0, 1, 32767], [-1]),
        ("4+", [4, 5], [3]),
        ("2-7", [2, 7], [1, 8]),
        ("3", [3], [2, 4]),
        ("none", [], [-1, 0, 1]),
    ],
)
def test_versions_are_written_as_kafka_writes_them(
    text: str, inside: list[int], outside: list[int]
) -> None:
    versions = versions_from(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
