"""One broker and one Spark session for all: starting Spark takes longer than most tests."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from millstream import Broker
from millstream.processing.session import open_session


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(retention_check_interval_ms="1h") as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


@pytest.fixture(scope="session")
def spark(broker: Broker) -> Iterator[SparkSession]:
    session = open_session("tests", master="local[2]", quick_start=True, log_level="off")
    yield session
    session.stop()
