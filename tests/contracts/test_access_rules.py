"""What each API needs, on Apache Kafka itself: the table is right, line by line.

The cases are those of the matrix (`tests/unit/broker/test_access_matrix.py`), the requests the same
bytes: a caller who may do everything but one thing is refused with the code that the table has, and
one who may do just what the line says is not.
"""

import base64
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from millstream.broker.security.acls import CLUSTER_NAME, WILDCARD, ResourceType
from millstream.broker.security.requirements import Denial, Need
from millstream.broker.wire import RESPONSES, ApiKey, ErrorCode, Message
from millstream.broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.broker.wire.messages.find_coordinator import FindCoordinatorRequest
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.broker.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.broker.wire.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.cli import app
from tests.support.apache_kafka import ApacheKafka, free_ports
from tests.support.raw_client import RawClient
from tests.support.served_node import ServedNode, newest, produce_request
from tests.support.waiting import eventually
from tests.unit.broker.group_steps import commit_request
from tests.unit.broker.test_access_matrix import (
    ADA,
    CASES,
    Case,
    Pair,
    all_but,
    denied_codes,
    exactly,
    newest_with_names,
)
from tests.unit.broker.test_handlers import ANY_ACL, Make, World, describe_sharing, join_sharing

pytestmark = pytest.mark.full

WITHIN_S = 10.0
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ada=secret;"


class KafkaNode:
    """As much of a ServedNode as the requests of the matrix use, on a real Kafka."""

    def __init__(self, admin: RawClient) -> None:
        self._admin = admin
        self.now_ms = time.time_ns() // 1_000_000
        self.node = SimpleNamespace(topics=self)

    def ask(self, request: Message, version: int | None = None) -> Any:
        return call(self._admin, request, newest(request) if version is None else version)

    def create(self, name: str, partitions: int = 1) -> Any:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        self.named(name)
        return SimpleNamespace(name=name)

    def __contains__(self, name: str) -> bool:
        return bool(self._metadata(name).error_code == 0)

    def named(self, name: str) -> Any:
        """Once it has a leader."""
        deadline = time.monotonic() + WITHIN_S
        while (topic := self._metadata(name)).error_code or not topic.partitions:
            assert time.monotonic() < deadline, topic
            time.sleep(0.05)
        return SimpleNamespace(id=topic.topic_id)

    def _metadata(self, name: str) -> Any:
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        return self.ask(wanted, 12).topics[0]


def call(client: RawClient, request: Any, version: int) -> Any:
    key = ApiKey(cast(int, request.__schema__.api_key))
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = 10_000  # Kafka gives up at once otherwise
    return client.call(request, RESPONSES[key], version)


class Kafka:
    def __init__(self, plain: str, sasl: str) -> None:
        self.bootstrap = plain
        self._admin, self._ada = RawClient(plain), RawClient(sasl)
        log_in(self._ada, "ada", "secret")
        self.served = cast(ServedNode, KafkaNode(self._admin))
        self._numbers = itertools.count()

    def world(self, case: Case, version: int) -> World:
        return World(self.served, f"w{case}-{version}-{next(self._numbers)}", version)

    def ask_as_ada(self, request: Message, version: int) -> Any:
        return call(self._ada, request, version)

    def give(self, pairs: set[Pair]) -> None:
        """These rules to ada, and no others."""
        old = DeleteAclsFilter(**ANY_ACL | {"principal_filter": ADA})
        call(self._admin, DeleteAclsRequest(filters=[old]), 3)
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD,
                resource_pattern_type=3,
                principal=ADA,
                host=WILDCARD,
                operation=operation,
                permission_type=3,
            )
            for operation, kind in sorted(pairs)
        ]
        answer = call(self._admin, CreateAclsRequest(creations=creations), 3)
        assert [each for each in answer.results if each.error_code] == []

    def close(self) -> None:
        self._admin.socket.close()
        self._ada.socket.close()


def log_in(client: RawClient, user: str, password: str) -> None:
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    assert client.call(handshake, SaslHandshakeResponse, 1).error_code == 0
    proof = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    answer = client.call(proof, SaslAuthenticateResponse, 2)
    assert answer.error_code == 0, base64.b64encode(answer.auth_bytes)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    plain, sasl, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
    properties = {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl},CONTROLLER://{controller}",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ApacheKafka(extra_properties=properties, heap="512m", bootstrap=plain):
        opened = Kafka(plain, sasl)
        opened.served.create("orders", 2)
        opened.served.ask(produce_request(b"a", b"b"))
        for key_type in (0, 1):  # makes the coordinators' topics
            opened.served.ask(
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=["readers"])
            )
        eventually(lambda: commits(opened), what="a coordinator", within_s=30)
        yield opened
        opened.close()


def commits(kafka: Kafka) -> bool:
    answer = kafka.served.ask(commit_request(1), 9)
    return bool(answer.topics[0].partitions[0].error_code == 0)


def of_an_assigned_member(world: World) -> Message:
    """Kafka looks at the topics that members have, and assigns them a moment after the join."""
    request = describe_sharing(world)
    answer = world.served.ask(join_sharing(world))

    def is_assigned() -> bool:
        nonlocal answer
        beat = join_sharing(world, member_epoch=answer.member_epoch, subscribed_topic_names=None)
        answer = world.served.ask(beat)
        return bool(answer.assignment and answer.assignment.topic_partitions)

    eventually(is_assigned, what="an assignment", within_s=20)
    return request


MAKE: dict[ApiKey, Make] = {ApiKey.SHARE_GROUP_DESCRIBE: of_an_assigned_member}
# Kafka looks for what a pattern matches some time after it has answered.
LATER = "consumer_group_heartbeat-by-pattern"
COMPARED = [
    replace(case, make=MAKE.get(case.key, case.make))
    for case in CASES
    if case.needs and str(case) != LATER
]
# Version 5 names the group's protocol; Kafka looks for that before it looks at who asks.
OLDER = {ApiKey.SYNC_GROUP: 4}


def answers_until(
    kafka: Kafka, case: Case, version: int, is_right: Any, *, within_s: float = WITHIN_S
) -> Any:
    """Ask anew until the answer is right: Kafka's rules take a moment to reach its broker."""
    deadline = time.monotonic() + within_s
    while True:
        world = kafka.world(case, version)
        answer = kafka.ask_as_ada(case.make(world), version)
        if is_right(answer, world) or time.monotonic() > deadline:
            return answer, world
        time.sleep(0.05)


def version_of(case: Case) -> int:
    return OLDER.get(case.key, max(case.first_version, newest_with_names(case.key)))


@pytest.mark.parametrize(
    ("case", "need"),
    [
        pytest.param(case, need, id=f"{case}-{n}")
        for case in COMPARED
        for n, need in enumerate(case.needs)
    ],
)
def test_kafka_refuses_who_may_do_everything_else(kafka: Kafka, case: Case, need: Need) -> None:
    kafka.give(all_but(need))

    def is_refused(answer: Message, world: World) -> bool:
        if need.denial is Denial.HIDES_ITEM:
            return case.shows is None or not case.shows(answer, world)
        return need.error in denied_codes(answer)

    answer, world = answers_until(kafka, case, version_of(case), is_refused)
    assert is_refused(answer, world), answer


@pytest.mark.parametrize("case", COMPARED, ids=str)
def test_kafka_does_not_refuse_who_may_do_just_this(kafka: Kafka, case: Case) -> None:
    kafka.give(exactly(case))

    def is_served(answer: Message, world: World) -> bool:
        shows = case.shows is None or case.shows(answer, world)
        return denied_codes(answer) == set() and shows

    answer, world = answers_until(kafka, case, version_of(case), is_served)
    assert is_served(answer, world), answer


def test_the_commands_add_list_and_remove_rules_on_kafka(kafka: Kafka) -> None:
    def run(*args: str) -> str:
        result = CliRunner().invoke(app, ["acls", *args, "--brokers", kafka.bootstrap])
        assert result.exit_code == 0, result.output
        return result.stdout

    kafka.give(set())
    who = ("--principal", "bob")
    run("add", *who, "--deny", "--operation", "write", "--topic", "pay", "--prefix")
    run("add", *who, "--operation", "create", "--operation", "alter-configs", "--cluster")

    def rules() -> list[str]:
        found = json.loads(run("list", *who, "--json"))
        return [f"{one['permission']} {one['operation']} {one['resource']}" for one in found]

    expected = ["allow alter-configs cluster", "allow create cluster", "deny write topic"]
    eventually(lambda: rules() == expected, what="three rules")
    assert "topic pay*" in run("list", "--topic", "payments")
    run("remove", *who, "--yes")
    eventually(lambda: rules() == [], what="no rule")
