"""How jobs reach a broker through librdkafka: one configuration, and its errors in our own words.

Works with Millstream's broker and with Apache Kafka alike. Patient: a job outlives a restart of
its broker.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.librdkafka import admin_api, quiet_config
from millstream.base.near_names import did_you_mean
from millstream.base.topic_check import check_topics
from millstream.base.topic_terms import TopicTerms

T = TypeVar("T")

# A broker that was killed and has much to check is back within this.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.2
# Until all brokers of a cluster know a new topic.
KNOWN_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.02
TIMEOUTS = ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
# A broker that has just started: it leads nothing yet, or has not read its state.
NOT_READY = (
    "_NOENT",
    "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "NOT_COORDINATOR",
    "NOT_CONTROLLER",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
)
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")

_admins: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}


class BrokerNotReached(Retryable):
    def __init__(self, *, brokers: str, doing: str) -> None:
        super().__init__(
            f"Cannot {doing}: no broker answers at {brokers}. Start it (`millstream broker`), or "
            "correct the address"
        )
        self.brokers, self.doing = brokers, doing


class BrokerNotReady(Retryable):
    def __init__(self, *, brokers: str, doing: str, code: str) -> None:
        super().__init__(
            f"Cannot {doing}: the broker at {brokers} is not ready for it yet ({code})"
        )
        self.brokers, self.doing, self.code = brokers, doing, code


class RefusedByBroker(Rejected):
    def __init__(self, *, doing: str, code: str, reason: str) -> None:
        super().__init__(f"Cannot {doing}: {reason.rstrip('. ')} ({code})")
        self.doing, self.code, self.reason = doing, code, reason


class TopicNotFound(Rejected):
    def __init__(self, *, topic: str, known: Iterable[str]) -> None:
        makes_it = f"`millstream topics create {topic}` makes it"
        hint = did_you_mean(topic, known, otherwise=makes_it)
        super().__init__(f"Topic {topic} does not exist. {hint}")
        self.topic = topic


def client_config(brokers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """A job that fails is started with new clients."""
    return quiet_config({"bootstrap.servers": brokers, **client}, name="millstream-processing")


def error_from(error: KafkaError, *, doing: str, brokers: str) -> MillstreamError:
    code = error.name()
    if code in UNREACHABLE or code in TIMEOUTS:
        return BrokerNotReached(brokers=brokers, doing=doing)
    if code in NOT_READY:
        return BrokerNotReady(brokers=brokers, doing=doing, code=code)
    return RefusedByBroker(doing=doing, code=code, reason=error.str() or code)


def translated(call: Callable[[], T], *, doing: str, brokers: str) -> T:
    """Call, and raise librdkafka's error as ours."""
    try:
        return call()
    except KafkaException as error:
        raise error_from(error.args[0], doing=doing, brokers=brokers) from None
    except TimeoutError:  # of a future
        raise BrokerNotReached(brokers=brokers, doing=doing) from None


def answer_in(future: Any, *, doing: str, brokers: str) -> Any:
    """What the broker answers, or its KafkaException; no answer is an error of ours."""
    try:
        return future.result(PATIENCE_SECONDS)
    except TimeoutError:
        raise BrokerNotReached(brokers=brokers, doing=doing) from None


def patiently(ask: Callable[[], T]) -> T:
    """Ask again while no broker answers: what was asked when it went away fails at once."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (BrokerNotReached, BrokerNotReady):
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)


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
    holds: str = "its records",
    is_needed: bool = True,
) -> None:
    """Make the topic unless it exists; one that exists must keep what it holds.

    A cluster may answer before all of it knows the topic.
    """
    new = admin_api().NewTopic(topic, partitions, -1, config=dict(config))
    admin = admin_client(brokers, client)
    answers = admin.create_topics([new])
    doing = f"create topic {topic}"
    try:
        answer_in(answers[topic], doing=doing, brokers=brokers)
    except KafkaException as error:
        if code_of(error) != "TOPIC_ALREADY_EXISTS":
            raise error_from(error.args[0], doing=doing, brokers=brokers) from None
        terms = TopicTerms(name=topic, config=config, holds=holds, is_needed=is_needed)
        check_existing(brokers, client, [terms])
        return
    _wait_until_known(admin, topic, brokers=brokers)


def topic_partitions(brokers: str, client: Mapping[str, str]) -> dict[str, int]:
    """How many each topic has. Asks for all: to ask for one by its name may make it."""
    admin = admin_client(brokers, client)
    found = translated(
        lambda: admin.list_topics(timeout=PATIENCE_SECONDS), doing="list topics", brokers=brokers
    )
    return {name: len(topic.partitions) for name, topic in found.topics.items()}


def check_existing(brokers: str, client: Mapping[str, str], wanted: Sequence[TopicTerms]) -> None:
    """Those that exist are what they must be; otherwise an error or a warning."""
    admin = admin_client(brokers, client)
    there = topic_partitions(brokers, client)
    translated(
        lambda: check_topics(admin, wanted, there), doing="read configs of topics", brokers=brokers
    )


def _wait_until_known(admin: Any, topic: str, *, brokers: str) -> None:
    """Not for ever: who may not describe a topic never sees it.

    Asks for all topics: to ask for one by its name may make it.
    """
    deadline = time.monotonic() + KNOWN_SECONDS_MAX
    while time.monotonic() < deadline:
        found = translated(
            lambda: admin.list_topics(timeout=PATIENCE_SECONDS),
            doing=f"look for topic {topic}",
            brokers=brokers,
        )
        if topic in found.topics:
            return
        time.sleep(LOOK_SECONDS)


def code_of(error: KafkaException) -> str:
    return str(error.args[0].name())
