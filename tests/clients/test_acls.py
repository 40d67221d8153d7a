"""librdkafka and `millstream acls` against a broker process whose rules decide."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from millstream.cli import app
from tests.support.broker_process import assert_no_traceback
from tests.support.java_tools import run_class
from tests.support.protected_broker import PASSWORD, USER, ProtectedBroker, add_user
from tests.support.waiting import eventually

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "authorization.md"
EVE, EVES_PASSWORD = "eve", "eve's own"
WITHIN_S = 15


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectedBroker]:
    folder = tmp_path_factory.mktemp("ruled")
    add_user(folder / "data")
    add_user(folder / "data", EVE, EVES_PASSWORD)
    running = ProtectedBroker(folder, has_tls=False, sasl="SCRAM-SHA-256")
    with running:
        yield running
        assert running.stop() == 0
        assert_no_traceback(running.diagnostics)


class Operator:
    """Ada at the command line; eve as a client."""

    def __init__(self, broker: ProtectedBroker, folder: Path) -> None:
        self._broker = broker
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        self._env = {
            "MILLSTREAM_BROKERS": broker.bootstrap,
            "MILLSTREAM_USER": USER,
            "MILLSTREAM_PASSWORD_FILE": str(secret),
        }

    def run(self, *args: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(app, list(args), env=self._env)
        assert result.exit_code == exit_code, result.output
        return result.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json"))

    def create_topic(self, name: str) -> None:
        admin = AdminClient(self._broker.client())
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WITHIN_S)

    def eve(self, **more: Any) -> dict[str, Any]:
        return self._broker.client(sasl_username=EVE, sasl_password=EVES_PASSWORD, **more)


@pytest.fixture
def ada(broker: ProtectedBroker, tmp_path: Path) -> Operator:
    return Operator(broker, tmp_path)


def send(producer: Producer, topic: str) -> KafkaError | None:
    """What became of one record."""
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"hello", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(WITHIN_S) == 0
    return outcomes[0]


def code_of(error: KafkaError | None) -> int:
    return 0 if error is None else error.code()


def test_a_producer_may_write_from_the_rule_to_its_removal(ada: Operator) -> None:
    ada.create_topic("eves-letters")
    producer = Producer(ada.eve())
    assert code_of(send(producer, "eves-letters")) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    ada.run(
        "acls", "add", "--principal", EVE, "--operation", "write", "--topic", "eves-", "--prefix"
    )
    writer = Producer(ada.eve(linger_ms=0))
    assert code_of(send(writer, "eves-letters")) == 0
    ada.run("acls", "remove", "--principal", EVE, "--yes")
    # The same connection, and what it was allowed a moment ago.
    assert code_of(send(writer, "eves-letters")) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_needs_its_topic_and_its_group(ada: Operator) -> None:
    ada.create_topic("news")
    assert code_of(send(Producer(ada._broker.client()), "news")) == 0

    def first_answer() -> Any:
        config = ada.eve(group_id="readers", auto_offset_reset="earliest")
        consumer = Consumer(config)
        consumer.subscribe(["news"])
        try:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            error = message.error()
            return message.value() if error is None else error.code()
        finally:
            consumer.close()

    assert first_answer() in (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )
    ada.run("acls", "add", "--principal", EVE, "--operation", "read", "--topic", "news")
    assert first_answer() == KafkaError.GROUP_AUTHORIZATION_FAILED
    ada.run("acls", "add", "--principal", EVE, "--operation", "read", "--group", "readers")
    assert first_answer() == b"hello"
    ada.run("acls", "remove", "--principal", EVE, "--yes")


def test_a_transactional_id_belongs_to_who_may_write_by_it(ada: Operator) -> None:
    config = ada.eve(transactional_id="billing")
    with pytest.raises(KafkaException) as refused:
        Producer(config).init_transactions(WITHIN_S)
    code = refused.value.args[0].code()
    assert code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rule = ("--principal", EVE, "--operation", "write", "--transactional-id", "billing")
    ada.run("acls", "add", *rule)
    Producer(config).init_transactions(WITHIN_S)
    ada.run("acls", "remove", *rule, "--yes")


def test_topics_that_one_may_not_see_are_not_in_the_list(ada: Operator) -> None:
    ada.create_topic("secret-plans")
    assert Producer(ada.eve()).list_topics(timeout=WITHIN_S).topics == {}
    rule = ("--principal", EVE, "--operation", "describe", "--topic", "secret-plans")
    ada.run("acls", "add", *rule)
    assert list(Producer(ada.eve()).list_topics(timeout=WITHIN_S).topics) == ["secret-plans"]
    ada.run("acls", "remove", *rule, "--yes")


def test_rules_are_added_listed_and_removed_by_command(ada: Operator) -> None:
    said = ada.run(
        "acls", "add", "--deny", "--principal", "User:*", "--operation", "all", "--topic", "pay",
        "--prefix", "--host", "192.0.2.7",
    )  # fmt: skip
    assert said == "User:* may not all topic pay* from 192.0.2.7\n"
    ada.run("acls", "add", "--principal", "bob", "--operation", "create", "--cluster")
    assert ada.json("acls", "list", "--topic", "payments") == [
        {
            "principal": "User:*",
            "permission": "deny",
            "operation": "all",
            "resource": "topic",
            "name": "pay",
            "pattern": "prefix",
            "host": "192.0.2.7",
        }
    ]
    assert [rule["resource"] for rule in ada.json("acls", "list", "--principal", "bob")] == [
        "cluster"
    ]
    assert ada.run("acls", "list").splitlines() == [
        "PRINCIPAL  MAY  OPERATION  RESOURCE    FROM",
        "User:*     NO   all        topic pay*  192.0.2.7",
        "User:bob   yes  create     cluster     *",
    ]
    ada.run("acls", "remove", "--topic", "pay", exit_code=1)  # literally: there is none
    ada.run("acls", "remove", "--topic", "pay", "--prefix", "--yes")
    ada.run("acls", "remove", "--cluster", "--yes")
    assert ada.json("acls", "list") == []


def test_who_may_not_change_rules_is_told_so(ada: Operator, tmp_path: Path) -> None:
    secret = tmp_path / "eves"
    secret.write_text(EVES_PASSWORD)
    secret.chmod(0o600)
    ada._env |= {"MILLSTREAM_USER": EVE, "MILLSTREAM_PASSWORD_FILE": str(secret)}
    rule = ("--principal", EVE, "--operation", "all", "--topic", "*")
    ada.run("acls", "add", *rule, exit_code=77)
    assert ada.json("acls", "list") == []


@pytest.mark.parametrize(
    "args",
    [
        ("add", "--principal", "ada", "--operation", "read"),
        ("add", "--principal", "ada", "--operation", "peek", "--topic", "t"),
        ("add", "--principal", ":ada", "--operation", "read", "--topic", "t"),
        ("remove",),
    ],
)
def test_a_rule_that_is_not_understood_is_not_sent(ada: Operator, args: tuple[str, ...]) -> None:
    ada.run("acls", *args, exit_code=2)


@pytest.mark.full
def test_kafkas_own_command_adds_and_lists_rules(
    ada: Operator, broker: ProtectedBroker, tmp_path: Path
) -> None:
    config = broker.java_client(tmp_path / "client.properties")

    def kafka_acls(*args: str) -> str:
        there = ("--bootstrap-server", broker.bootstrap, "--command-config", str(config))
        return run_class("org.apache.kafka.tools.AclCommand", *there, *args).checked().stdout

    kafka_acls("--add", "--allow-principal", "User:bob", "--producer", "--topic", "java")
    listed = [(rule["operation"], rule["resource"]) for rule in ada.json("acls", "list")]
    assert listed == [(word, "topic") for word in ("create", "describe", "write")]
    assert "operation=WRITE" in kafka_acls("--list", "--topic", "java")
    kafka_acls("--remove", "--topic", "java", "--force")
    assert ada.json("acls", "list") == []


def test_the_commands_of_the_guide_work(ada: Operator) -> None:
    """Each line of a console block, and what it prints where the guide shows it."""
    text = GUIDE.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for command, *shown in (part.splitlines() for b in blocks for part in b.split("$ ")[1:]):
        program, *args = shlex.split(command)
        assert program == "millstream"
        printed = ada.run(*args)
        assert not shown or printed.splitlines() == shown
    ada.run("acls", "remove", "--principal", USER, "--principal", "User:*", "--yes")
    assert ada.json("acls", "list") == []


def test_denials_and_changes_are_in_the_diagnostics(ada: Operator, broker: ProtectedBroker) -> None:
    send(Producer(ada.eve()), "audited")
    rule = ("--principal", EVE, "--operation", "read", "--topic", "audited")
    ada.run("acls", "add", *rule)
    ada.run("acls", "remove", *rule, "--yes")
    denied = "denied: 'User:eve' from 127.0.0.1 DESCRIBE on TOPIC 'audited' by Metadata"
    eventually(lambda: denied in broker.diagnostics, what="the denial")
    assert "'User:ada' from 127.0.0.1: ACL added: 'ALLOW User:eve" in broker.diagnostics
    assert "'User:ada' from 127.0.0.1: ACL removed: 'ALLOW User:eve" in broker.diagnostics
