"""A queue's own client by TLS and login, against a broker process that asks for both."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream import App, Queue
from millstream.base.errors import MillstreamError
from millstream.queues.access import access_from
from millstream.queues.connection import ConnectionLost
from millstream.queues.inspection import queue_names
from millstream.queues.login import LoginFailed
from millstream.queues.membership import RefusedByGroup
from millstream.queues.outbox import PutRefused
from millstream.queues.worker import Worker
from tests.support.protected_broker import PASSWORD, USER, ProtectedBroker

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectedBroker]:
    running = ProtectedBroker(tmp_path_factory.mktemp("protected"))
    with running:
        yield running
        assert running.stop() == 0


def do_one_job(queue: Queue) -> None:
    queue.put("secret work")
    job = queue.get(WITHIN_S)
    assert job is not None
    with job:
        assert job.value == "secret work"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_job_is_put_and_done_by_tls_and_login(broker: ProtectedBroker, mechanism: str) -> None:
    with Queue(f"by-{mechanism}", broker.client(sasl_mechanism=mechanism)) as queue:
        do_one_job(queue)


def test_an_app_reads_its_tls_and_login_from_the_settings(
    broker: ProtectedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    settings = {
        "BROKERS": broker.bootstrap,
        "TLS_CA": broker.path("ca.pem"),
        "USER": USER,
        "PASSWORD_FILE": str(password),
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"MILLSTREAM_{name}", value)
    with App("shop") as app:
        do_one_job(app.queue("jobs"))


def test_a_worker_needs_no_more_rights_than_the_guide_says(broker: ProtectedBroker) -> None:
    with Queue("limited", broker.client()) as queue:
        queue.put_many(["good", "bad"])
    admin = add_user(broker, "worker")
    config = broker.client(sasl_username="worker", sasl_password="let me in")
    with Queue("limited", config, set_up=False) as queue, pytest.raises(RefusedByGroup):
        queue.get()
    for made in admin.create_acls([*rights_of("User:worker", "limited")]).values():
        made.result()
    with Queue("limited", config, set_up=False) as queue:
        for _ in range(2):
            job = queue.get(WITHIN_S)
            assert job is not None
            if job.value == "bad":
                job.reject("bad")
            else:
                job.ack()
    with Queue("limited", broker.client()) as queue:
        assert [letter.death.reason for letter in queue.dead_letters()] == ["bad"]


def add_user(broker: ProtectedBroker, user: str) -> AdminClient:
    admin = AdminClient(broker.client())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    new = UserScramCredentialUpsertion(user, info, b"let me in")
    admin.alter_user_scram_credentials([new])[user].result()
    return admin


def may_write(principal: str, topic: str) -> AclBinding:
    literal, write = ResourcePatternType.LITERAL, AclOperation.WRITE
    allow = AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, literal, principal, "*", write, allow)


def rights_of(principal: str, queue: str) -> Iterator[AclBinding]:
    rights = [
        (ResourceType.TOPIC, queue, AclOperation.READ),
        (ResourceType.GROUP, f"queue.{queue}", AclOperation.READ),
        (ResourceType.TOPIC, f"{queue}.dead", AclOperation.WRITE),
    ]
    for kind, name, operation in rights:
        yield AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            principal,
            "*",
            operation,
            AclPermissionType.ALLOW,
        )


def test_a_wrong_password_is_told_to_those_who_wait(broker: ProtectedBroker) -> None:
    worker = Worker(
        access_from(broker.client(sasl_password="guess")), group="queue.wrong", topic="wrong"
    )
    with pytest.raises(LoginFailed, match=USER):
        worker.get(None)
    worker.close()


@pytest.mark.parametrize("set_up", [True, False])
def test_a_wrong_login_is_told_to_those_who_put(
    broker: ProtectedBroker, monkeypatch: pytest.MonkeyPatch, set_up: bool
) -> None:
    monkeypatch.setattr("millstream.queues.outbox.TROUBLE_SECONDS_MAX", 0.2)
    config = broker.client(sasl_username="mallory")
    with (
        Queue("wrong", config, set_up=set_up) as queue,
        pytest.raises(LoginFailed, match="mallory"),
    ):
        queue.put(1)


def test_a_wrong_login_is_told_to_those_who_read_letters(broker: ProtectedBroker) -> None:
    """A user for each try: the broker answers ever later to one who fails again."""
    queue = Queue("wrong", broker.client(sasl_username="eve"), set_up=False)
    with queue, pytest.raises(LoginFailed, match="eve"):
        queue.dead_letters()
    queue = Queue("wrong", broker.client(sasl_username="trudy"), set_up=False)
    with queue, pytest.raises(LoginFailed, match="trudy"):
        queue.redrive()


def test_a_job_that_may_not_be_put_is_refused_until_it_may(broker: ProtectedBroker) -> None:
    with Queue("private", broker.client()) as queue:
        queue.put("hers")
    admin = add_user(broker, "stranger")
    config = broker.client(sasl_username="stranger", sasl_password="let me in")
    with Queue("private", config, set_up=False) as queue:
        for _ in range(2):
            with pytest.raises(PutRefused, match="authorization failed") as refused:
                queue.put("his")
            assert "again" not in str(refused.value)
        for made in admin.create_acls([may_write("User:stranger", "private")]).values():
            made.result()
        assert queue.put("his").topic == "private"


def test_a_broker_of_another_authority_is_not_talked_to(broker: ProtectedBroker) -> None:
    config = broker.client()
    del config["ssl.ca.location"]  # then the system's, which do not know it
    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        asyncio.run(queue_names(access_from(config)))


def test_a_job_is_held_beyond_the_life_of_a_login(tmp_path: Path) -> None:
    options = ("--sasl-session-ms", "1500ms")
    broker = ProtectedBroker(tmp_path, *options, has_tls=False, sasl="SCRAM-SHA-256")
    with broker:
        with Queue("long", broker.client(), lock=1) as queue:
            queue.put(1)
            job = queue.get(WITHIN_S)
            assert job is not None
            time.sleep(3)
            job.ack()
        with pytest.raises(MillstreamError):
            job.ack()
