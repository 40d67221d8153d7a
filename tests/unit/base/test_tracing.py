"""What spans are to the code around OpenTelemetry: nothing while traces are off."""

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from millstream.base.record import Record
from millstream.base.tracing import (
    TRACEPARENT,
    Attributes,
    is_tracing,
    span,
    trace_id_now,
    traced,
    traceparent_now,
    use_tracer,
)

HERE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class KnownTracer:
    def __init__(self) -> None:
        self.begun: list[str] = []

    @contextlib.contextmanager
    def span(
        self, name: str, *, attributes: Attributes, parent: str, links: Sequence[str]
    ) -> Iterator[None]:
        self.begun.append(name)
        yield

    def traceparent(self) -> str:
        return HERE

    def trace_id(self) -> str:
        return HERE.split("-")[1]


@pytest.fixture
def tracer() -> Iterator[KnownTracer]:
    tracer = KnownTracer()
    use_tracer(tracer)
    yield tracer
    use_tracer(None)


def test_records_stay_as_they_are_if_traces_are_off() -> None:
    records = [Record(value=b"a")]
    with span("publish"):
        assert traced(records) is records
    assert (is_tracing(), traceparent_now(), trace_id_now()) == (False, "", "")


def test_a_record_gets_the_trace_unless_it_has_one(tracer: KnownTracer) -> None:
    own = Record(value=b"b", headers=((TRACEPARENT, b"theirs"),))
    other = Record(value=b"a", headers=(("kind", b"x"),))
    with span("publish"):
        found = traced([other, own])
    assert [one.headers for one in found] == [
        (("kind", b"x"), (TRACEPARENT, HERE.encode())),
        own.headers,
    ]
    assert tracer.begun == ["publish"]
