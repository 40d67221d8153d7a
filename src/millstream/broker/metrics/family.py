"""A family: one metric with its name, kind, labels, and the function that reads it from a node.

    @gauge("millstream_partition_size_bytes", "Bytes on disk.", "topic", "partition")
    def partition_size(node: Node) -> Readings:
        for labels, partition in partitions_of(node):
            yield labels, partition.log.size_bytes

Names follow Prometheus: `millstream_` first, the unit last, `_total` behind what only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from millstream.broker.metrics.histogram import Histogram

if TYPE_CHECKING:
    from millstream.broker.node import Node

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Value: TypeAlias = float | Histogram
# The values of the labels, in their order, and the number.
Reading: TypeAlias = tuple[tuple[str, ...], Value]
Readings: TypeAlias = Iterable[Reading]
ReadFunction: TypeAlias = "Callable[[Node], Readings | Value]"
F = TypeVar("F", bound="Callable[..., Readings | Value]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    function: ReadFunction

    def read(self, node: Node) -> list[Reading]:
        """As it is at this moment; without labels there is one reading."""
        found = self.function(node)
        if isinstance(found, int | float | Histogram):
            return [((), found)]
        return list(found)


FAMILIES: list[Family] = []


def counter(name: str, help: str, *labels: str) -> Callable[[F], F]:
    """What only grows while the broker runs."""
    return _registered(name, "counter", help, labels)


def gauge(name: str, help: str, *labels: str) -> Callable[[F], F]:
    """What rises and falls."""
    return _registered(name, "gauge", help, labels)


def histogram(name: str, help: str, *labels: str) -> Callable[[F], F]:
    """How values are spread."""
    return _registered(name, "histogram", help, labels)


def _registered(name: str, kind: Kind, help: str, labels: tuple[str, ...]) -> Callable[[F], F]:
    def register(function: F) -> F:
        FAMILIES.append(Family(name=name, kind=kind, help=help, labels=labels, function=function))
        return function

    return register
