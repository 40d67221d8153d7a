"""The brokers that foreign clients are tried on: ours always, Apache Kafka in the full run.

A test that asks for `bootstrap` is a contract: it runs unchanged on both, so that it cannot ask
of our broker what Kafka does not do. A test that needs our files asks for `millstream_data`.
"""

import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.steps import unique_name
from tests.conftest import (
    CONSUMER_HEARTBEAT_MS,
    CONSUMER_SESSION_MS,
    SHARE_HEARTBEAT_MS,
    SHARE_SESSION_MS,
)
from tests.support.kafka_jars import MissingToolError, java_command, kafka_classpath

# A run that was started in the background ignores SIGINT, and so would the commands that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

BROKERS = ["millstream", pytest.param("apache-kafka", marks=pytest.mark.full)]


@pytest.fixture(scope="session")
def quick_millstream() -> Iterator[str]:
    """Ours, with the settings of `apache_kafka`."""
    from millstream import Broker  # here, so that Kafka's half runs without ours

    with Broker(
        retention_check_interval_ms="1h",
        group_consumer_session_timeout_ms=f"{CONSUMER_SESSION_MS}ms",
        group_consumer_heartbeat_interval_ms=f"{CONSUMER_HEARTBEAT_MS}ms",
        group_share_session_timeout_ms=f"{SHARE_SESSION_MS}ms",
        group_share_heartbeat_interval_ms=f"{SHARE_HEARTBEAT_MS}ms",
    ) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a running broker, one per session and kind."""
    is_kafka = request.param == "apache-kafka"
    address: str = request.getfixturevalue("apache_kafka" if is_kafka else "quick_millstream")
    return address


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


@pytest.fixture
def topic() -> str:
    """A name that no other test uses; nothing is created."""
    return unique_name("topic")


@pytest.fixture
def group() -> str:
    """A group id that no other test uses."""
    return unique_name("group")


@pytest.fixture(scope="session")
def kafka_tools() -> None:
    """Kafka's own Java tools. Without Java and Maven, and the right to install them, the tests
    that run them are skipped; never where CI counts on them."""
    try:
        java_command()
        kafka_classpath()
    except MissingToolError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
