"""Families as text for Prometheus, in slices: the loop goes on with its clients between them.

The only file that knows prometheus_client's types. A family is read at one moment, so that its
numbers fit together; two families can be some milliseconds apart.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

import millstream.broker.metrics.families  # noqa: F401 - fills the table of families
from millstream.broker.metrics.family import FAMILIES, Family, Reading
from millstream.broker.metrics.histogram import Histogram
from millstream.broker.node import Node

# One series takes 10 to 20 us to write: a slice holds the loop for 2 to 4 ms.
SLICE_SERIES = 200
# The most that is shown of one family: a broker with more partitions or groups shows the first.
SERIES_MAX = 20_000
LEFT_OUT = "millstream_metrics_left_out_series"
LEFT_OUT_HELP = "Series of a family beyond the most that is shown of one."

Encoder: TypeAlias = Callable[[Collector], bytes]
OPENMETRICS = "application/openmetrics-text"
END_OF_OPENMETRICS = b"# EOF\n"


class Exposition:
    """What one node tells, in the format that one request accepts."""

    def __init__(self, node: Node, accept: str) -> None:
        self._node = node
        self._encode: Encoder
        self._encode, self.content_type = choose_encoder(accept)
        self._left_out: dict[str, int] = {}

    def slices(self) -> Iterator[bytes]:
        """The text in pieces; each is made when it is asked for."""
        for family in FAMILIES:
            yield from self._family(family)
        yield self._text(_left_out(self._left_out))
        for metric in ProcessCollector(registry=None).collect():
            yield self._text(metric)
        if self.content_type.startswith(OPENMETRICS):
            yield END_OF_OPENMETRICS

    def _family(self, family: Family) -> Iterator[bytes]:
        readings = family.read(self._node)
        if len(readings) > SERIES_MAX:
            self._left_out[family.name] = len(readings) - SERIES_MAX
        shown = islice(readings, SERIES_MAX)
        yield self._text(_metric(family, list(islice(shown, SLICE_SERIES))))
        while some := list(islice(shown, SLICE_SERIES)):
            yield _without_head(self._text(_metric(family, some)))

    def _text(self, metric: Metric) -> bytes:
        return self._encode(_One(metric)).removesuffix(END_OF_OPENMETRICS)


class _One(Collector):
    """A metric in the form that prometheus_client's encoders take."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


def _metric(family: Family, readings: list[Reading]) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
    for label_values, value in readings:
        labels = dict(zip(family.labels, label_values, strict=True))
        if isinstance(value, Histogram):
            metric.samples += _histogram_samples(family.name, labels, value)
        else:
            metric.samples.append(Sample(family.name, labels, value))
    return metric


def _histogram_samples(name: str, labels: dict[str, str], value: Histogram) -> Iterator[Sample]:
    for bound, count in value.cumulative():
        yield Sample(f"{name}_bucket", labels | {"le": _bound_text(bound)}, count)
    yield Sample(f"{name}_count", labels, value.count)
    yield Sample(f"{name}_sum", labels, value.sum)


def _bound_text(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))


def _left_out(counts: dict[str, int]) -> Metric:
    metric = Metric(LEFT_OUT, LEFT_OUT_HELP, "gauge")
    for name, count in counts.items():
        metric.add_sample(LEFT_OUT, {"family": name}, count)
    return metric


def _without_head(text: bytes) -> bytes:
    """Its lines without HELP and TYPE: a family has them once."""
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
