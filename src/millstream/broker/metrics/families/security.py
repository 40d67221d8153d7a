"""Who was kept out, or made to wait."""

from millstream.broker.metrics.family import Readings, counter
from millstream.broker.node import Node


@counter("millstream_logins_total", "Logins, by how they ended.", "outcome")
def logins(node: Node) -> Readings:
    yield ("succeeded",), node.logins.counts.succeeded
    yield ("failed",), node.logins.counts.failed


@counter("millstream_access_denials_total", "What access rules have denied.")
def denials(node: Node) -> float:
    return node.access.denials.count


@counter(
    "millstream_throttled_seconds_total",
    "For how long clients were told to wait, by the quota that they exceeded.",
    "quota",
)
def throttled_seconds(node: Node) -> Readings:
    for quota, throttled_ms in node.quotas.throttled_ms.items():
        yield (quota,), throttled_ms / 1000
