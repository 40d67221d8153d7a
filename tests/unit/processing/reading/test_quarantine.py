"""Late events in quarantine, and what of them is put back."""

from dataclasses import replace

from millstream.base.record import Header, Record
from millstream.processing.reading.quarantine import (
    REINJECTED_HEADER,
    chosen,
    events_in,
    reinjected_headers,
)


def kept(
    offset: int, *, job: str = "bills", written_ms: int = 7, own: tuple[Header, ...] = ()
) -> Record:
    facts = {
        "topic": "orders",
        "partition": 1,
        "offset": offset,
        "group": job,
        "message": "late",
        "timestamp": written_ms,
    }
    headers = tuple((f"__dlq.errors.{name}", str(fact).encode()) for name, fact in facts.items())
    return Record(key=b"k", value=b"%d" % offset, headers=(*own, *headers), timestamp_ms=100)


def put_back(event_id: str) -> Record:
    return Record(headers=((REINJECTED_HEADER, event_id.encode()),), timestamp_ms=200)


def test_an_event_is_one_whoever_kept_it_and_however_often() -> None:
    (event,) = events_in([kept(3), kept(3), kept(3, job="audit"), Record(value=b"no letter")])
    assert (event.id, event.jobs, event.value) == ("orders-1-3", ("audit", "bills"), b"3")


def test_the_same_place_in_a_topic_that_was_made_again_is_another_event() -> None:
    events = events_in([kept(3), put_back("orders-1-3"), kept(3, written_ms=8)])
    assert [event.reinjected_ms for event in events] == [200, None]
    assert [event.written_ms for event in chosen(events, None)] == [8]


def test_an_event_that_was_put_back_stays_so_when_a_batch_is_repeated() -> None:
    events = events_in([kept(3), put_back("orders-1-3"), kept(3), kept(4)])
    assert [event.id for event in chosen(events, None)] == ["orders-1-4"]
    assert chosen(events, ["orders-1-3"]) == []


def test_an_event_goes_back_with_its_own_headers_and_its_origin() -> None:
    own: tuple[Header, ...] = (("trace", b"x"), ("empty", None))
    (event,) = events_in([kept(3, own=own)])
    headers = reinjected_headers(event)
    assert headers == [*own, (REINJECTED_HEADER, b"orders-1-3")]
    # Late again, from its new place, and back again: the last origin is told.
    (again,) = events_in([kept(9, own=tuple(headers))])
    assert reinjected_headers(again) == [*own, (REINJECTED_HEADER, b"orders-1-9")]


def test_headers_that_others_wrote_badly_break_nothing() -> None:
    bad = replace(kept(3), headers=(("__dlq.errors.topic", b"\xff"), ("__dlq.errors.offset", None)))
    (event,) = events_in([bad])
    assert (event.partition, event.offset) == (-1, -1)
