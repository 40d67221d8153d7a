"""One broker and one Spark session for all: starting Spark takes longer than most tests.

In the full run, every test runs on Apache Kafka too.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from millstream import Broker
from millstream.processing.session import open_session
from tests.support.apache_kafka import ApacheKafka

BROKERS = ["millstream", pytest.param("apache-kafka", marks=pytest.mark.full)]


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a running broker. Some records are old: retention must not come for them."""
    if request.param == "apache-kafka":
        unhurried = {"log.retention.check.interval.ms": "3600000"}
        with ApacheKafka(extra_properties=unhurried) as kafka:
            yield kafka.bootstrap
    else:
        with Broker(retention_check_interval_ms="1h") as broker:
            yield broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", master="local[2]", quick_start=True, log_level="off")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def millstream_session(spark: SparkSession) -> SparkSession:
    """The scripts of steps use the session of all."""
    return spark
