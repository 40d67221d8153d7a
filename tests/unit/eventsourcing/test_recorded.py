"""What recorders of the `eventsourcing` library keep: their numbers and their bytes come back."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.eventsourcing.recorded import (
    Numbers,
    decode_recorded,
    encode_recorded,
    numbers_by_last,
    numbers_of,
)
from millstream.eventsourcing.stored_event import StoredEvent


def stored(data: bytes, version: int = 1) -> StoredEvent:
    return StoredEvent(
        seq=version,
        stream="s",
        version=version,
        type="t",
        type_version=1,
        id=str(version),
        at=datetime(2026, 11, 18, tzinfo=UTC),
        data=msgspec.Raw(data),
    )


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_come_back_as_they_were(state: bytes) -> None:
    assert decode_recorded(stored(encode_recorded(state))).bytes == state


@pytest.mark.parametrize("state", [b'{"amount":5}', b"[1, 2.50]", b'"text"', b"null"])
def test_json_stays_readable(state: bytes) -> None:
    data = encode_recorded(state, version=3, order="dense")
    assert state in data
    assert decode_recorded(stored(data)).bytes == state


@pytest.mark.parametrize(
    "state", [b"", b" {}", b"{}\n", b'{\n"a":1}', b'"\xff"', b"{", b"NaN", b"1e400"]
)
def test_what_is_no_line_of_json_is_kept_whole(state: bytes) -> None:
    data = encode_recorded(state)
    assert b"\n" not in data
    assert decode_recorded(stored(data)).bytes == state


@given(st.lists(st.integers(-3, 12)))
def test_numbers_are_known_by_the_last_event_or_by_all(versions: list[int]) -> None:
    """As a recorder does it: it looks at the last event, and at all only if it must."""
    taken: list[int] = []
    events: list[StoredEvent] = []
    for version in versions:
        numbers = numbers_by_last(events[-1]) if events else Numbers()
        if numbers.needs_all(version):
            numbers = numbers_of(events)
        assert numbers.has(version) == (version in taken)
        if version not in taken:
            after = numbers.with_next(version)
            taken.append(version)
            events.append(
                stored(encode_recorded(b"{}", version=version, order=after.order), len(taken))
            )


@given(st.lists(st.integers(-3, 12), unique=True))
def test_numbers_of_one_insert_are_known_while_it_goes_on(versions: list[int]) -> None:
    numbers = Numbers()
    for place, version in enumerate(versions):
        assert not numbers.needs_all(version)
        assert [numbers.has(one) for one in versions[:place]] == [True] * place
        assert not numbers.has(version)
        numbers = numbers.with_next(version)


def test_a_dense_stream_is_not_read_again() -> None:
    events = [stored(encode_recorded(b"{}", version=v, order="dense"), v + 1) for v in range(5)]
    numbers = numbers_by_last(events[-1])
    assert (numbers.first, numbers.last, numbers.count) == (0, 4, 5)
    assert not any(numbers.needs_all(version) for version in range(-2, 9))
