"""Connections, and the memory that requests on their way take."""

from millstream.broker.metrics.family import Readings, counter, gauge
from millstream.broker.node import Node


@gauge("millstream_connections", "Open connections of clients.")
def connections(node: Node) -> float:
    return len(node.connections)


@counter("millstream_connections_accepted_total", "Connections that were let in.")
def accepted(node: Node) -> float:
    return node.metrics.connections_accepted


@counter(
    "millstream_connections_closed_total",
    "Connections that the broker closed: refused (a limit of connections), rejected (a request "
    "that was malformed, too large or not offered), idle.",
    "reason",
)
def closed(node: Node) -> Readings:
    yield ("refused",), node.admission.refused
    yield ("rejected",), node.metrics.connections_rejected
    yield ("idle",), node.metrics.connections_idle_closed


@gauge(
    "millstream_request_memory_bytes",
    "Memory lent to large requests that are being received (limit: request_bytes_max).",
)
def request_memory(node: Node) -> float:
    return node.request_memory.used_bytes
