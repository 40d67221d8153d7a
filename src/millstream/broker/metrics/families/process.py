"""The broker as a whole.

CPU, memory and descriptors of its process are prometheus_client's.
"""

from millstream._version import __version__
from millstream.broker.metrics.family import Readings, gauge, histogram
from millstream.broker.metrics.histogram import Histogram
from millstream.broker.node import Node


@gauge("millstream_build_info", "Always 1; which version this is.", "version")
def build_info(node: Node) -> Readings:
    yield (__version__,), 1


@gauge("millstream_node_info", "Always 1; which broker this is.", "cluster_id", "node_id")
def node_info(node: Node) -> Readings:
    yield (node.directory.cluster_id, str(node.config.node_id)), 1


@gauge("millstream_leader_epoch", "Counts the starts of this data directory's owners.")
def leader_epoch(node: Node) -> float:
    return node.directory.epoch


@histogram(
    "millstream_loop_delay_seconds",
    "How late the broker's loop was for what was due, looked at twice a second: all clients wait "
    "so long, as one loop serves them.",
)
def loop_delay(node: Node) -> Histogram:
    return node.metrics.loop_delays
