"""Millstream: a durable log that speaks Kafka's protocol, and what grows around it.

import millstream

app = millstream.App("shop")
app.queue("jobs").put({"user": 7})
clicks = app.topic("clicks", schema="url STRING, at TIMESTAMP", event_time="at")

@app.view(key=["window", "url"])
def clicks_per_minute(clicks):
    return clicks.groupBy(millstream.windows.tumbling("1 minute"), "url").count()

with millstream.Broker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from millstream._version import __version__

if TYPE_CHECKING:
    from millstream import stores
    from millstream.app import App, Topic
    from millstream.base.errors import Rejected
    from millstream.embedded import Broker, BrokerDidNotStart
    from millstream.eventsourcing.aggregate import Aggregate
    from millstream.eventsourcing.command_sender import NoAnswer, Pending
    from millstream.eventsourcing.declared_event import event
    from millstream.eventsourcing.personal import FORGOTTEN, Personal, personal
    from millstream.eventsourcing.query import Query
    from millstream.eventsourcing.reaction import Cause
    from millstream.eventsourcing.stored_event import StoredEvent
    from millstream.eventsourcing.upcasting import upcast
    from millstream.jobs import JobsFailed
    from millstream.processing.operators import changelog, joins, windows
    from millstream.processing.operators import clock_skew as clocks
    from millstream.queues.leader_link import LockLost
    from millstream.queues.queue import Job, Queue

__all__ = [
    "FORGOTTEN",
    "Aggregate",
    "App",
    "Broker",
    "BrokerDidNotStart",
    "Cause",
    "Job",
    "JobsFailed",
    "LockLost",
    "NoAnswer",
    "Pending",
    "Personal",
    "Query",
    "Queue",
    "Rejected",
    "StoredEvent",
    "Topic",
    "__version__",
    "changelog",
    "clocks",
    "event",
    "joins",
    "personal",
    "stores",
    "upcast",
    "windows",
]

HOMES = {
    "FORGOTTEN": "eventsourcing.personal",
    "Aggregate": "eventsourcing.aggregate",
    "App": "app",
    "Broker": "embedded",
    "BrokerDidNotStart": "embedded",
    "Cause": "eventsourcing.reaction",
    "Job": "queues.queue",
    "JobsFailed": "jobs",
    "LockLost": "queues.leader_link",
    "NoAnswer": "eventsourcing.command_sender",
    "Pending": "eventsourcing.command_sender",
    "Personal": "eventsourcing.personal",
    "Query": "eventsourcing.query",
    "Queue": "queues.queue",
    "Rejected": "base.errors",
    "StoredEvent": "eventsourcing.stored_event",
    "Topic": "app",
    "event": "eventsourcing.declared_event",
    "personal": "eventsourcing.personal",
    "upcast": "eventsourcing.upcasting",
}
# Whole modules; operators of jobs need Spark, stores their drivers.
MODULES = {
    "changelog": "processing.operators.changelog",
    "clocks": "processing.operators.clock_skew",
    "joins": "processing.operators.joins",
    "stores": "stores",
    "windows": "processing.operators.windows",
}


def __getattr__(name: str) -> object:
    """The public names are loaded when they are used: a command starts without them."""
    if name in MODULES:
        return import_module(f"millstream.{MODULES[name]}")
    if name in HOMES:
        return getattr(_home(HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _home(module: str) -> ModuleType:
    try:
        return import_module(f"millstream.{module}")
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        from millstream.schemas.library_missing import LibraryMissing

        use = "events and aggregates"
        raise LibraryMissing(library="msgspec", extra="eventsourcing", use=use) from None
