"""Traces, if they are on: what spans are to code that does not know OpenTelemetry.

`telemetry.py` turns them on and gives the tracer; without it nothing is imported, and a span costs
one comparison. Trace contexts travel in the header `traceparent` of records (W3C Trace Context).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from millstream.base.record import Header, Record

TRACEPARENT = "traceparent"
Attributes = Mapping[str, str | int]


class Tracer(Protocol):
    def span(
        self, name: str, *, attributes: Attributes, parent: str, links: Sequence[str]
    ) -> "contextlib.AbstractContextManager[object]": ...

    def traceparent(self) -> str: ...

    def trace_id(self) -> str: ...


_tracer: Tracer | None = None


def use_tracer(tracer: Tracer | None) -> None:
    global _tracer
    _tracer = tracer


def is_tracing() -> bool:
    return _tracer is not None


@contextlib.contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    parent: str = "",
    links: Sequence[str] = (),
) -> Iterator[None]:
    """`parent` and `links` are traceparents; without a parent it is the span around this one."""
    if _tracer is None:
        yield
        return
    with _tracer.span(name, attributes=attributes or {}, parent=parent, links=links):
        yield


def published(topic: str, number: int) -> Attributes:
    """By OpenTelemetry's names for messaging."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.batch.message_count": number,
    }


def traced(records: Sequence[Record]) -> Sequence[Record]:
    """The records with the header of the span around this, but for those that have one."""
    here = traceparent_now()
    if not here:
        return records
    header: Header = (TRACEPARENT, here.encode())
    return [
        one if any(name == TRACEPARENT for name, _ in one.headers) else _with(one, header)
        for one in records
    ]


def _with(record: Record, header: Header) -> Record:
    return replace(record, headers=(*record.headers, header))


def traceparent_now() -> str:
    """Of the span around this; empty if there is none."""
    return "" if _tracer is None else _tracer.traceparent()


def trace_id_now() -> str:
    return "" if _tracer is None else _tracer.trace_id()
