"""Rows and messages of an outbox become events on the topics that they name."""

import pytest

from millstream.base.schema import Scalar
from millstream.capture.change import Change, Message
from millstream.capture.outbox import (
    Event,
    NotRoutable,
    event_from_message,
    event_from_row,
    is_event,
)
from tests.support.scripted_source import created, deleted, table_of, truncated, updated

OUTBOX = table_of(
    "outbox", id=Scalar.BIGINT, topic=Scalar.STRING, key=("id",), payload=Scalar.STRING
)
IN_BYTES = table_of("outbox", id=Scalar.BIGINT, topic=Scalar.STRING, payload=Scalar.BINARY)


def test_a_row_is_an_event_on_its_topic() -> None:
    row = {"id": 7, "topic": "billing", "key": "order 1", "payload": '{"amount": 1.50}'}
    assert event_from_row(created(OUTBOX, row)) == Event(
        "billing", b"order 1", b'{"amount": 1.50}', (("id", b"7"),)
    )


def test_the_names_that_debezium_has_for_the_columns_will_do() -> None:
    row = {"id": "u-1", "aggregate_type": "billing", "aggregate_id": 12, "payload": "x"}
    assert event_from_row(created(OUTBOX, row)) == Event("billing", b"12", b"x", (("id", b"u-1"),))


def test_bytes_are_the_bytes_that_were_written() -> None:
    row = {"id": 1, "topic": "billing", "payload": "AP8="}
    assert event_from_row(created(IN_BYTES, row)) == Event(
        "billing", None, b"\x00\xff", (("id", b"1"),)
    )


def test_no_payload_is_a_tombstone() -> None:
    found = event_from_row(created(OUTBOX, {"id": 1, "topic": "billing", "key": "a"}))
    assert isinstance(found, Event)
    assert found.value is None


@pytest.mark.parametrize(
    "topic", [None, "", "a topic", "x" * 250, ".", "..", "_captures", "__consumer_offsets"]
)
def test_a_row_that_names_no_topic_is_told_by_its_key(topic: str | None) -> None:
    found = event_from_row(created(OUTBOX, {"id": 41, "topic": topic, "payload": "x"}))
    assert isinstance(found, NotRoutable)
    assert "41" in found.reason


@pytest.mark.parametrize("prefix", ["outbox:_captures:definition", "outbox:.."])
def test_a_message_does_not_go_where_captures_are_commanded(prefix: str) -> None:
    assert event_from_message(Message(prefix=prefix, content=b"{}")) is None


def test_only_a_row_that_comes_is_an_event() -> None:
    row = {"id": 1}
    assert is_event(created(OUTBOX, row))
    assert is_event(Change(OUTBOX, "r", b"{}", None, b"{}"))
    assert not any(map(is_event, [deleted(OUTBOX, row), updated(OUTBOX, row), truncated(OUTBOX)]))


@pytest.mark.parametrize(
    ("prefix", "event"),
    [
        ("outbox:billing", Event("billing", None, b"x")),
        ("outbox:billing:", Event("billing", b"", b"x")),
        ("outbox:billing:order:1", Event("billing", b"order:1", b"x")),
        ("outbox:", None),
        ("outbox:no topic", None),
        ("audit", None),
    ],
)
def test_a_message_names_its_topic_and_key_in_its_prefix(prefix: str, event: Event | None) -> None:
    assert event_from_message(Message(prefix, b"x")) == event
