"""Millstream: a durable log that speaks Kafka's protocol, and what grows around it.

from millstream import Broker

with Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from millstream._version import __version__
from millstream.embedded import Broker, BrokerDidNotStart

__all__ = ["Broker", "BrokerDidNotStart", "__version__"]
