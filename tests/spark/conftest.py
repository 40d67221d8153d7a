"""One broker and one Spark session for all: starting Spark takes longer than most tests.

In the full run, a test runs on Apache Kafka too, unless it is of `OURS_ALONE`: it shows what Spark,
an operator or a store does with rows, and would ask nothing else of another broker. What is asked
of a broker is asked of both: all of test_topic_source.py and test_topic_sink.py, and of every other
capability (views, outputs, event time, rebuilds, views of views) the test that goes through most.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from millstream import Broker
from millstream.processing.session import open_session

BROKERS = ["millstream", pytest.param("apache-kafka", marks=pytest.mark.full)]
OURS_ALONE = pytest.mark.parametrize("bootstrap", ["millstream"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def unhurried_millstream() -> Iterator[str]:
    """Ours. Some records are old: retention must not come for them."""
    with Broker(retention_check_interval_ms="1h") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a running broker, one per session and kind."""
    is_kafka = request.param == "apache-kafka"
    address: str = request.getfixturevalue("apache_kafka" if is_kafka else "unhurried_millstream")
    return address


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
