"""Traces for OpenTelemetry: the only module that imports it, and only if traces are on.

Where spans go is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and their like); the code around it uses `base/tracing.py`.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millstream.base.errors import Rejected
from millstream.base.tracing import TRACEPARENT, Attributes, is_tracing, use_tracer
from millstream.settings import TelemetrySettings, load

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

SERVICE_NAME = "OTEL_SERVICE_NAME"
_lock = threading.Lock()


class TelemetryNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"traces are on (MILLSTREAM_TELEMETRY_TRACES), and {missing} is not installed: "
            "pip install 'millstream[otel]'"
        )
        self.missing = missing


def set_up_traces(service: str) -> None:
    """Once in a process, for the first application; nothing is imported if traces are off."""
    with _lock:
        if is_tracing() or not load(TelemetrySettings).traces:
            return
        try:
            use_tracer(OtelTracer(_provider(service)))
        except ImportError as error:
            raise TelemetryNotInstalled(missing=str(error.name)) from None


def _provider(service: str) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    own = {} if SERVICE_NAME in os.environ else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(own))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class OtelTracer:
    """What is ended is sent in batches by a thread of the SDK, and at the end of the process."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("millstream")
        self._propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def span(
        self, name: str, *, attributes: Attributes, parent: str, links: Sequence[str]
    ) -> Iterator[None]:
        from opentelemetry.trace import Link

        found = [Link(one) for text in links if (one := self._context_of(text)).is_valid]
        context = self._propagator.extract({TRACEPARENT: parent}) if parent else None
        with self._tracer.start_as_current_span(
            name, context=context, attributes=dict(attributes), links=found
        ):
            yield

    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get(TRACEPARENT, "")

    def trace_id(self) -> str:
        from opentelemetry.trace import format_trace_id, get_current_span

        context = get_current_span().get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else ""

    def _context_of(self, traceparent: str) -> "SpanContext":
        from opentelemetry.context import Context
        from opentelemetry.trace import get_current_span

        context = self._propagator.extract({TRACEPARENT: traceparent}, context=Context())
        return get_current_span(context).get_span_context()
