"""What a decision may ask for: versions that are numbers, events whose ids are their own."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from millstream.eventsourcing.aggregates import Terms
from millstream.eventsourcing.index_file import decode_index, encode_index
from millstream.eventsourcing.partition_state import PartitionState, ReadRecords
from millstream.eventsourcing.staging import BadExpectation, EventIdReused, Staging, Wish
from millstream.eventsourcing.stored_event import NewEvent

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def staging(state: PartitionState) -> Staging:
    numbers = count(1)
    return Staging(
        state, read=lambda _: iter(()), now=lambda: NOON, new_id=lambda: f"made-{next(numbers)}"
    )


def append(staged: Staging, *ids: str | None, stream: str = "A") -> Any:
    events = [NewEvent(type="X", data=b"{}", id=id) for id in ids]
    return staged.decide(Wish(stream, lambda _: events))


@pytest.mark.parametrize("expect", [True, False, "1", 1.0, -1, b"1"])
def test_an_expected_version_is_a_whole_number(expect: Any) -> None:
    with pytest.raises(BadExpectation, match="is not a version of a stream"):
        Wish("A", lambda _: [], expect)
    with pytest.raises(BadExpectation):
        Terms(expect=expect, meta={})


@pytest.mark.parametrize("expect", [None, 0, 7])
def test_a_version_or_none_may_be_expected(expect: int | None) -> None:
    assert Wish("A", lambda _: [], expect).expect == expect


def test_an_event_id_comes_once_in_a_decision_and_nothing_of_it_is_kept() -> None:
    staged = staging(PartitionState("t[0]"))
    with pytest.raises(EventIdReused, match="'a' is stored already, or comes twice"):
        append(staged, "a", "a")
    assert staged.records == []
    assert append(staged, "a", None, None).ids[0] == "a"


def test_an_event_id_that_is_staged_committed_or_read_is_not_stored_again() -> None:
    state = PartitionState("t[0]")
    staged = staging(state)
    append(staged, "a")
    with pytest.raises(EventIdReused):
        append(staged, "a", stream="B")
    staged.settle(0)
    with pytest.raises(EventIdReused):
        append(staging(state), "a")
    read = PartitionState("t[0]")
    read.take_read(ReadRecords([0], [staged.records[0][1]]), end=1)
    with pytest.raises(EventIdReused):
        append(staging(read), "a")
    kept = PartitionState("t[0]")
    decode_index(encode_index(read), kept)
    with pytest.raises(EventIdReused):
        append(staging(kept), "a")


def test_so_many_ids_of_events_are_known_as_of_commands() -> None:
    state = PartitionState("t[0]", command_ids_max=2)
    state.note_events(["a", "b", "c"])
    assert list(state.event_ids) == ["b", "c"]
