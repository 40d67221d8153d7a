"""Records that are no events, or do not follow, are told with their place; what may be gone is not
missed."""

import pytest

from millstream.eventsourcing.partition_state import PartitionState, ReadRecords
from millstream.eventsourcing.stored_event import BadEventRecord, decode_event, decode_events

HASH = "0" * 64


def value(seq: int, version: int, *, hash: str = HASH, at: str = "2026-01-01T00:00:00Z") -> bytes:
    facts = f'"seq":{seq},"stream":"A","version":{version},"type":"X","type_version":1,"id":"x"'
    return f'{{{facts},"at":"{at}","data":{{}},"hash":"{hash}"}}'.encode()


def taken(*values: bytes | None) -> PartitionState:
    state = PartitionState("t[0]")
    offsets = range(7, 7 + len(values))
    state.take_read(ReadRecords(offsets, values), end=7 + len(values))  # type: ignore[arg-type]
    return state


@pytest.mark.parametrize(
    "second",
    [
        b"hello",
        b"{}",
        b"",
        None,
        b"[1]",
        value(2, 2) + b"," + value(3, 3),
        value(3, 2),
        value(1, 2),
        value(2, 1),
        value(2, 3),
        value(2, 2, hash="xyz"),
        value(2, 2, hash="00"),
        value(2, 2, at="2026-01-01T00:00:00"),
        value(2, 2, at="yesterday"),
    ],
)
def test_a_record_that_is_no_event_or_does_not_follow_is_told(second: bytes | None) -> None:
    with pytest.raises(BadEventRecord, match=r"t\[0\], (offset 8|stream A)"):
        taken(value(1, 1), second)


def test_a_record_that_is_too_deep_to_be_read_is_told() -> None:
    deep = value(2, 2).replace(b'"data":{}', b'"data":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    with pytest.raises(BadEventRecord, match=r"t\[0\], offset 8"):
        taken(value(1, 1), deep)
    with pytest.raises(BadEventRecord, match="here"):
        decode_event(deep, place="here")
    with pytest.raises(BadEventRecord, match="here"):
        decode_events([value(1, 1), deep], place="here")


def test_numbers_begin_with_one() -> None:
    with pytest.raises(BadEventRecord, match="number 0 follows 0"):
        taken(value(0, 1))


def test_a_log_whose_first_events_are_gone_goes_on_from_there() -> None:
    state = taken(value(5, 3), value(6, 4))
    assert (state.seq, state.version("A")) == (6, 4)
    seqs = state.index.of_stream("A", after=0, upto=None, position=None)
    assert list(seqs) == [5, 6]
    assert list(state.index.of_stream("A", after=3, upto=None, position=None)) == [6]
    assert list(state.index.of_stream("A", after=0, upto=3, position=None)) == [5]
    assert state.offset_of(6) == 8
