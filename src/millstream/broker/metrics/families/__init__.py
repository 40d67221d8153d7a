"""Every metric, by what it is about. Importing this package fills `FAMILIES`."""

from millstream.broker.metrics.families import (
    connections,
    durability,
    groups,
    partitions,
    process,
    requests,
    security,
    shares,
    transactions,
    upkeep,
)

__all__ = [
    "connections",
    "durability",
    "groups",
    "partitions",
    "process",
    "requests",
    "security",
    "shares",
    "transactions",
    "upkeep",
]
