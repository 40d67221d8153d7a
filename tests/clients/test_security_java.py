"""Kafka's Java clients log in by TLS and SCRAM, and its own tool manages users and quotas."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.java_tools import ToolRun, run_class, run_tool
from tests.support.protected_broker import ProtectedBroker

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("kafka_tools"),
]

CONFIG_COMMAND = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectedBroker]:
    with ProtectedBroker(tmp_path_factory.mktemp("protected")) as running:
        yield running


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_java_client_logs_in_by_tls_and_reads_what_it_wrote(
    broker: ProtectedBroker, tmp_path: Path, mechanism: str
) -> None:
    topic = f"java-{mechanism.lower()}"
    config = str(broker.java_client(tmp_path / "client.properties", mechanism))
    run_tool(
        "VerifiableProducer",
        *("--topic", topic, "--max-messages", "100", "--acks", "-1", "--command-config", config),
        bootstrap=broker.bootstrap,
    ).checked()
    read = run_tool(
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "100"),
        *("--command-config", config, "--timeout-ms", "30000"),
        bootstrap=broker.bootstrap,
    ).checked()
    assert sorted(map(int, read.lines)) == list(range(100))


def configs(broker: ProtectedBroker, file: Path, *arguments: str) -> ToolRun:
    where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(file))
    return run_class(CONFIG_COMMAND, *where, *arguments)


def test_kafkas_own_tool_adds_describes_and_removes_a_user(
    broker: ProtectedBroker, tmp_path: Path
) -> None:
    file = broker.java_client(tmp_path / "client.properties")
    grace = ("--entity-type", "users", "--entity-name", "grace")
    password = "SCRAM-SHA-512=[iterations=8192,password=hopper]"
    configs(broker, file, "--alter", "--add-config", password, *grace).checked()
    login = broker.client(
        sasl_mechanism="SCRAM-SHA-512", sasl_username="grace", sasl_password="hopper"
    )
    assert Producer(login).list_topics(timeout=10).brokers
    described = configs(broker, file, "--describe", *grace).checked()
    assert "SCRAM-SHA-512=iterations=8192" in described.stdout
    configs(broker, file, "--alter", "--delete-config", "SCRAM-SHA-512", *grace).checked()
    assert "iterations" not in configs(broker, file, "--describe", *grace).stdout


def test_kafkas_own_tool_sets_quotas_and_is_refused_those_that_nothing_enforces(
    broker: ProtectedBroker, tmp_path: Path
) -> None:
    file = broker.java_client(tmp_path / "client.properties")
    slow = ("--entity-type", "clients", "--entity-name", "slow")
    quota = "producer_byte_rate=1000,consumer_byte_rate=2000"
    configs(broker, file, "--alter", "--add-config", quota, *slow).checked()
    described = configs(broker, file, "--describe", *slow).checked()
    assert "producer_byte_rate=1000.0" in described.stdout
    assert "consumer_byte_rate=2000.0" in described.stdout
    refused = configs(broker, file, "--alter", "--add-config", "controller_mutation_rate=5", *slow)
    assert "is not supported" in refused.stdout + refused.stderr
    configs(broker, file, "--alter", "--delete-config", "producer_byte_rate", *slow).checked()
    assert "producer_byte_rate" not in configs(broker, file, "--describe", *slow).stdout
