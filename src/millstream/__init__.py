"""Millstream: a durable log that speaks Kafka's protocol, and what grows around it.

from millstream import Broker

with Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from typing import TYPE_CHECKING

from millstream._version import __version__

if TYPE_CHECKING:
    from millstream.embedded import Broker, BrokerDidNotStart

__all__ = ["Broker", "BrokerDidNotStart", "__version__"]


def __getattr__(name: str) -> object:
    """The public names are loaded when they are used: a command starts without them."""
    if name in __all__:
        from millstream import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
