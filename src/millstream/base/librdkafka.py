"""What every client of librdkafka has in common here, whoever uses it: settings, codes of errors.

Each part names its own errors; which codes pass by themselves is the same for all.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

NO_SUCH_TOPIC: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
FENCED: Final = frozenset(
    {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"}
)
# What goes by itself: nobody answers, or somebody who is not ready. After some of these the
# producer is of no use any more; a new one is.
PASSING: Final = frozenset(
    {
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "REQUEST_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_NOENT",
        "_WAIT_COORD",
        "_STATE",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "LEADER_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "NOT_LEADER_FOR_PARTITION",
        "NOT_COORDINATOR",
        "NOT_CONTROLLER",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "CONCURRENT_TRANSACTIONS",
        *NO_SUCH_TOPIC,  # just made, or just deleted
    }
)


def quiet_config(client: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """`client` wins. Nothing is written to stderr."""
    silent = logging.getLogger("millstream.librdkafka")
    silent.propagate = False
    if not silent.handlers:
        silent.addHandler(logging.NullHandler())
    return {
        "client.id": name,
        "logger": silent,
        "error_cb": lambda _error: None,
        # A broker that restarts is found again soon.
        "reconnect.backoff.max.ms": 1_000,
        # With its default, librdkafka 2.16 forgets its brokers when all are away, and a call that
        # waits for one of them may wait for ever.
        "metadata.recovery.strategy": "none",
        **client,
    }


def admin_api() -> Any:
    """confluent_kafka.admin, untyped: it does not export all its names to mypy."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def topic_id_text(topic_id: Any) -> str:
    """As Kafka's own tools write it: base64 for addresses."""
    return str(topic_id).replace("+", "-").replace("/", "_")
