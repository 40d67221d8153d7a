"""Millstream: a durable log that speaks Kafka's protocol, and what grows around it.

import millstream

app = millstream.App("shop")
app.queue("jobs").put({"user": 7})

with millstream.Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from importlib import import_module
from typing import TYPE_CHECKING

from millstream._version import __version__

if TYPE_CHECKING:
    from millstream.app import App
    from millstream.embedded import Broker, BrokerDidNotStart
    from millstream.queues.leader_link import LockLost
    from millstream.queues.queue import Job, Queue

__all__ = ["App", "Broker", "BrokerDidNotStart", "Job", "LockLost", "Queue", "__version__"]

HOMES = {
    "App": "app",
    "Broker": "embedded",
    "BrokerDidNotStart": "embedded",
    "Job": "queues.queue",
    "LockLost": "queues.leader_link",
    "Queue": "queues.queue",
}


def __getattr__(name: str) -> object:
    """The public names are loaded when they are used: a command starts without them."""
    if name in HOMES:
        return getattr(import_module(f"millstream.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
