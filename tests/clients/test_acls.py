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
from typer.testing import CliRunner, Result

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
    """Ada, or another user, at the command line; eve as a client."""

    def __init__(
        self, broker: ProtectedBroker, secret: Path, user: str = USER, password: str = PASSWORD
    ) -> None:
        self._broker = broker
        secret.write_text(password)
        secret.chmod(0o600)
        self._env = {
            "MILLSTREAM_BROKERS": broker.bootstrap,
            "MILLSTREAM_USER": user,
            "MILLSTREAM_PASSWORD_FILE": str(secret),
        }

    def run(self, *args: str, exit_code: int = 0) -> str:
        return self._run(*args, exit_code=exit_code).stdout

    def said(self, *args: str, exit_code: int = 0) -> str:
        """Its stderr."""
        return self._run(*args, exit_code=exit_code).stderr

    def _run(self, *args: str, exit_code: int) -> Result:
        result = CliRunner().invoke(app, list(args), env=self._env)
        assert result.exit_code == exit_code, result.output
        return result

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json"))

    def create_topic(self, name: str) -> None:
        admin = AdminClient(self._broker.client())
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WITHIN_S)

    def eve(self, **more: Any) -> dict[str, Any]:
        return self._broker.client(sasl_username=EVE, sasl_password=EVES_PASSWORD, **more)


@pytest.fixture
def ada(broker: ProtectedBroker, tmp_path: Path) -> Operator:
    return Operator(broker, tmp_path / "password")


@pytest.fixture
def eve(broker: ProtectedBroker, tmp_path: Path) -> Operator:
    return Operator(broker, tmp_path / "eves", EVE, EVES_PASSWORD)


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
    said = ada.said("acls", "remove", "--topic", "pay", exit_code=1)  # literally: there is none
    assert "No rule is like that" in said
    ada.run("acls", "remove", "--topic", "pay", "--prefix", "--yes")
    ada.run("acls", "remove", "--cluster", "--yes")
    assert ada.json("acls", "list") == []


def test_who_may_not_change_rules_is_told_so(eve: Operator) -> None:
    rule = ("--principal", EVE, "--operation", "all", "--topic", "*")
    eve.run("acls", "add", *rule, exit_code=77)
    assert eve.json("acls", "list") == []


# --- looking with few rights -------------------------------------------------------------------


@pytest.fixture
def ledger(ada: Operator) -> Iterator[str]:
    """A topic with one record, of which eve may read the topic and the group `audit`."""
    topic = "ledger"
    if topic not in ada.run("topics", "list"):
        ada.create_topic(topic)
        assert code_of(send(Producer(ada._broker.client()), topic)) == 0
    rule = ("--principal", EVE, "--operation", "read", "--topic", topic, "--group", "audit")
    ada.run("acls", "add", *rule)
    yield topic
    ada.run("acls", "remove", "--principal", EVE, "--yes")


def test_to_print_a_topic_needs_no_right_but_to_read_it(eve: Operator, ledger: str) -> None:
    assert eve.run("consume", ledger, "--until", "latest") == "hello\n"


def test_a_group_that_one_may_not_join_is_named(eve: Operator, ledger: str) -> None:
    said = eve.said("consume", ledger, "--group", "billing", "--max", "1", exit_code=77)
    assert "Cannot read as a member of group billing: the broker's access rules" in said


def test_configs_that_one_may_not_see_are_left_out(eve: Operator, ledger: str) -> None:
    assert eve.run("topics", "list").splitlines() == [
        "TOPIC   PARTITIONS  RECORDS  RETENTION",
        "ledger           1        1  -",
    ]
    shown = eve.run("topics", "describe", ledger, "--all-configs")
    assert "  records    1\n  retention  -\n\nPARTITION" in shown
    (described,) = eve.json("topics", "describe", ledger)
    assert (described["configs"], described["retention_ms"]) == (None, None)


def test_a_groups_lag_is_shown_without_its_topics_configs(
    ada: Operator, eve: Operator, ledger: str
) -> None:
    ada.run("groups", "reset", "audit", "--to", "earliest", "--topic", ledger, "--yes")
    (group,) = eve.json("groups", "describe", "audit")
    (part,) = group["partitions"]
    assert (part["lag"], part["risk"], part["retention_ms"]) == (1, "unknown", None)
    assert [row["lag"] for row in eve.json("groups", "list")] == [1]
    (seen_by_ada,) = ada.json("groups", "describe", "audit")
    assert seen_by_ada["partitions"][0]["risk"].startswith("loses data in")


def test_a_group_whose_topics_one_may_not_see_does_not_spoil_the_list(
    ada: Operator, eve: Operator, ledger: str
) -> None:
    ada.create_topic("vault")
    assert code_of(send(Producer(ada._broker.client()), "vault")) == 0
    ada.run("groups", "reset", "audit", "--to", "earliest", "--topic", ledger, "--yes")
    ada.run("acls", "add", "--principal", EVE, "--operation", "describe", "--group", "guards")
    guard = ada._broker.client(
        group_id="guards", group_protocol="consumer", auto_offset_reset="earliest"
    )
    consumer = Consumer(guard)
    try:
        consumer.subscribe(["vault"])
        assert consumer.poll(WITHIN_S) is not None
        rows = [line.split() for line in eve.run("groups", "list").splitlines()[1:]]
        listed = {row["group"]: row for row in eve.json("groups", "list")}
    finally:
        consumer.close()
    assert [row[0] for row in rows] == ["audit", "guards"]
    assert rows[1] == ["guards", "hidden", "unknown", "-", "-", "-"]
    assert (listed["audit"]["lag"], listed["guards"]["lag"]) == (1, None)


def test_who_asks_for_configs_to_change_them_is_told_of_which_topic(
    eve: Operator, ledger: str
) -> None:
    said = eve.said("topics", "alter", ledger, "--config", "retention.ms=1h", exit_code=77)
    assert f"Cannot read the configs of topic {ledger}: " in said


def test_a_topic_is_created_by_who_may_not_look_at_it(ada: Operator, eve: Operator) -> None:
    rule = ("--principal", EVE, "--topic", "eves", "--prefix")
    ada.run("acls", "add", *rule, "--operation", "create")
    assert eve.run("topics", "create", "eves-dark") == "Created topic eves-dark\n"
    ada.run("acls", "add", *rule, "--operation", "describe")
    assert eve.run("topics", "create", "eves-dim") == "Created topic eves-dim: 1 partition\n"
    ada.run("acls", "add", *rule, "--operation", "describe-configs")
    assert ": 1 partition, retention 7d" in eve.run("topics", "create", "eves-lit")
    ada.run("acls", "remove", "--principal", EVE, "--yes")


# --- principals --------------------------------------------------------------------------------


def test_a_principal_that_can_never_match_is_refused_with_the_right_form(ada: Operator) -> None:
    rule = ("--operation", "read", "--topic", "t")
    said = ada.said("acls", "add", "--deny", "--principal", "user:bob", *rule, exit_code=2)
    assert "User:bob" in said
    ada.run("acls", "remove", "--principal", "user:bob", "--yes", exit_code=1)  # taken, none there


def test_a_rule_for_somebody_who_cannot_log_in_yet_is_made_with_a_hint(ada: Operator) -> None:
    rule = ("--operation", "read", "--topic", "t")
    everybody = ("--principal", EVE, "--principal", "User:*", "--principal", "User:CN=bob")
    assert ada.said("acls", "add", *everybody, *rule) == ""
    said = ada.said("acls", "add", "--principal", "bbo", *rule, "--json")
    assert said == "There is no user bbo yet. `millstream users add bbo` adds one.\n"
    ada.run("acls", "remove", "--topic", "t", "--yes")
    assert ada.json("acls", "list") == []


def test_who_may_not_list_users_gets_no_hint(ada: Operator, eve: Operator) -> None:
    ada.run("acls", "add", "--principal", EVE, "--operation", "alter", "--cluster")
    ada.run("acls", "add", "--deny", "--principal", EVE, "--operation", "describe", "--cluster")
    rule = ("--principal", "bbo", "--operation", "read", "--topic", "t")
    assert eve.said("acls", "add", *rule) == ""
    ada.run("acls", "remove", "--principal", EVE, "--principal", "bbo", "--yes")


# --- options -----------------------------------------------------------------------------------


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
