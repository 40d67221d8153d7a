"""How jobs reach a broker through librdkafka: one configuration, and its errors in our own words.

Works with Millstream's broker and with Apache Kafka alike. Patient: a job outlives a restart of
its broker.
"""

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from millstream.base.errors import MillstreamError, Rejected, Retryable

T = TypeVar("T")

# A broker that was killed and has much to check is back within this.
PATIENCE_SECONDS = 60.0
TIMEOUTS = ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
NO_SUCH_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

_admins: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}


class BrokerNotReached(Retryable):
    def __init__(self, *, brokers: str, doing: str) -> None:
        super().__init__(
            f"Cannot {doing}: no broker answers at {brokers}. Start it (`millstream broker`), or "
            "correct the address"
        )
        self.brokers, self.doing = brokers, doing


class RefusedByBroker(Rejected):
    def __init__(self, *, doing: str, code: str, reason: str) -> None:
        super().__init__(f"Cannot {doing}: {reason.rstrip('. ')} ({code})")
        self.doing, self.code, self.reason = doing, code, reason


class TopicNotFound(Rejected):
    def __init__(self, *, topic: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(topic, list(known), n=1)
        hint = (
            f"Did you mean {near[0]}?" if near else f"`millstream topics create {topic}` makes it"
        )
        super().__init__(f"Topic {topic} does not exist. {hint}")
        self.topic = topic


def client_config(brokers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """What every client has in common; `client` wins. Nothing is written to stderr."""
    silent = logging.getLogger("millstream.librdkafka")
    silent.propagate = False
    if not silent.handlers:
        silent.addHandler(logging.NullHandler())
    return {
        "bootstrap.servers": brokers,
        "client.id": "millstream-processing",
        "logger": silent,
        "error_cb": lambda _error: None,
        # A broker that restarts is found again soon.
        "reconnect.backoff.max.ms": 1_000,
        **client,
    }


def error_from(error: KafkaError, *, doing: str, brokers: str) -> MillstreamError:
    code = error.name()
    if code in UNREACHABLE or code in TIMEOUTS:
        return BrokerNotReached(brokers=brokers, doing=doing)
    return RefusedByBroker(doing=doing, code=code, reason=error.str() or code)


def translated(call: Callable[[], T], *, doing: str, brokers: str) -> T:
    """Call, and raise librdkafka's error as ours."""
    try:
        return call()
    except KafkaException as error:
        raise error_from(error.args[0], doing=doing, brokers=brokers) from None


def admin_api() -> Any:
    """confluent_kafka.admin, untyped: it does not export its names to mypy."""
    import confluent_kafka.admin

    return confluent_kafka.admin


def admin_client(brokers: str, client: Mapping[str, str]) -> Any:
    """One for each cluster and process: tasks come every moment, a connection takes time."""
    key = (brokers, frozenset(client.items()))
    if key not in _admins:
        _admins[key] = admin_api().AdminClient(client_config(brokers, client))
    return _admins[key]


def make_topic(
    brokers: str,
    client: Mapping[str, str],
    topic: str,
    *,
    partitions: int,
    config: Mapping[str, str],
) -> None:
    """Make the topic unless it is there."""
    new = admin_api().NewTopic(topic, partitions, -1, config=dict(config))
    answers = admin_client(brokers, client).create_topics([new])
    try:
        answers[topic].result(PATIENCE_SECONDS)
    except KafkaException as error:
        if code_of(error) != "TOPIC_ALREADY_EXISTS":
            doing = f"create topic {topic}"
            raise error_from(error.args[0], doing=doing, brokers=brokers) from None


def code_of(error: KafkaException) -> str:
    return str(error.args[0].name())
