"""A writer of an internal topic that configures processes gets nothing out of these processes.

The writer here may write `_captures`, and has a server that notes what comes to it. The runner's
operator has a secret in the environment, and a file.
"""

import contextlib
import json
import socket
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from psycopg.conninfo import conninfo_to_dict

from millstream import Broker
from millstream.base.errors import MillstreamError
from millstream.base.log_clients import Topics
from millstream.base.schema import Scalar
from millstream.capture import runner as runner_module
from millstream.capture.approval import Approval, NotApproved
from millstream.capture.approved_captures import ApprovedCaptures
from millstream.capture.captures_topic import write_wanted
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.load.plan import TableLoad, load_to_json
from millstream.capture.mariadb import logging_in
from millstream.capture.mariadb.connection import UnsafeLogin
from millstream.capture.position_record import Note, load_note, schema_note
from millstream.capture.runner import CaptureRunner
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli
from tests.support.protected_broker import make_certificates
from tests.support.scripted_source import table_of
from tests.support.waiting import eventually

SECRET = "wJalrXUtnFEMI"
WITHIN_S = 60.0


class FakeServer:
    """Takes connections, answers nothing, and notes what it was sent."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(WITHIN_S)
                self.heard.append(connection.recv(65_536))

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with contextlib.closing(FakeServer()) as fake:
        yield fake


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SECRET", SECRET)
    monkeypatch.setenv("MILLSTREAM_CAPTURES_APPROVED", str(tmp_path / "approved" / "captures.json"))


class Topic:
    """`_captures`, written without asking anybody."""

    def __init__(self, bootstrap: str) -> None:
        self.client, self.name = {"bootstrap.servers": bootstrap}, unique_name("shop")
        self.control = CaptureControl(self.client)

    def define(self, url: str, **told: Any) -> CaptureDefinition:
        facts = {"name": self.name, "url": url, "tables": ["orders"]} | told
        key = json.dumps(["definition", self.name]).encode()
        write_wanted(self.client, [(key, json.dumps(facts).encode())])
        return CaptureDefinition(**facts | {"tables": tuple(facts["tables"])})


@pytest.fixture
def topic(bootstrap: str) -> Topic:
    return Topic(bootstrap)


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://mill:${{AWS_SECRET}}@127.0.0.1:{port}/shop?connect_timeout=2&sslmode=disable",
        "postgresql://${{AWS_SECRET}}@127.0.0.1:{port}/shop?connect_timeout=2&sslmode=disable",
        "mariadb://${{AWS_SECRET}}:x@127.0.0.1:{port}/shop",
        "postgresql:///shop?host=127.0.0.1&port={port}&connect_timeout=2",
    ],
)
def test_a_definition_that_nobody_approved_makes_a_runner_connect_nowhere(
    topic: Topic, server: FakeServer, place: str
) -> None:
    topic.define(place.format(port=server.port))
    with pytest.raises(NotApproved) as refused:
        CaptureRunner(topic.client, topic.name).run(once=True)
    assert "millstream capture approve" in str(refused.value)
    assert SECRET not in str(refused.value)
    assert server.heard == []


def test_an_approved_capture_whose_url_is_changed_connects_nowhere(
    topic: Topic, server: FakeServer
) -> None:
    approved = Approval.of(topic.define("postgresql://mill@10.0.0.1/shop"))
    topic.define(f"postgresql://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop")
    with pytest.raises(NotApproved, match=r"url was 'postgresql://mill@10\.0\.0\.1/shop' and is"):
        CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
    assert server.heard == []
    status = topic.control.capture(topic.name).status or {}
    assert status["state"] == "failed"
    assert SECRET not in json.dumps(status)


@pytest.mark.parametrize(
    "change", [{"outbox": "orders"}, {"mode": "triggers"}, {"topic_prefix": "_schemas"}]
)
def test_an_approved_database_is_not_changed_by_what_the_topic_says(
    topic: Topic, tmp_path: Path, change: dict[str, str]
) -> None:
    """An outbox is emptied, triggers are made: neither by somebody else's wish."""
    file = shop_file(tmp_path)
    approved = Approval.of(topic.define(f"sqlite:///{file}"))
    before = file.read_bytes()
    topic.define(f"sqlite:///{file}", **change)
    with pytest.raises(NotApproved, match=f"{next(iter(change))} was"):
        CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
    assert file.read_bytes() == before


def test_no_file_of_the_runner_gets_triggers(topic: Topic, tmp_path: Path) -> None:
    file = shop_file(tmp_path)
    before = file.read_bytes()
    topic.define(f"sqlite:///{file}")
    with pytest.raises(NotApproved):
        CaptureRunner(topic.client, topic.name).run(once=True)
    assert file.read_bytes() == before


@pytest.mark.parametrize("writes", ["_captures", "_captures.{name}"])
def test_the_topic_of_somebody_else_is_not_emptied(
    topic: Topic, tmp_path: Path, writes: str
) -> None:
    """A table that is gone has its topic emptied: which topic that is, a record could say."""
    victim, compacted = unique_name("bank.balances"), {"cleanup.policy": "compact"}
    Topics(topic.client).ensure(victim, partitions=1, config=compacted, holds="balances")
    send(topic, victim, [(b"ada", b"100"), (b"bob", b"7")])
    url = f"sqlite:///{shop_file(tmp_path)}"
    approved = Approval.of(topic.define(url))
    CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)

    topic.define(url, tables=["orders", "ghost"])
    ghost = replace(table_of("ghost", id=Scalar.BIGINT), name="main.ghost", topic=victim)
    half_loaded = load_note(topic.name, ghost.name, load_to_json(TableLoad.begun([2])))
    send(topic, writes.format(name=topic.name), [schema_note(topic.name, ghost), half_loaded])
    CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
    assert values_in(topic, victim) == [b"100", b"7"]


def send(topic: Topic, name: str, notes: Sequence[Note]) -> None:
    producer = Producer(topic.client)
    for key, value in notes:
        producer.produce(name, value, key)
    assert producer.flush(WITHIN_S) == 0


def values_in(topic: Topic, name: str) -> list[bytes | None]:
    settings = {"group.id": "who looks", "enable.partition.eof": True}
    with contextlib.closing(Consumer(topic.client | settings)) as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        found = []
        while (message := consumer.poll(WITHIN_S)) is not None and not message.error():
            found.append(message.value())
        return found


def test_a_definition_that_changes_while_the_capture_runs_ends_it(
    topic: Topic, server: FakeServer, tmp_path: Path
) -> None:
    approved = Approval.of(topic.define(f"sqlite:///{shop_file(tmp_path)}"))
    runner = CaptureRunner(topic.client, topic.name, approval=approved)
    errors: list[MillstreamError] = []

    def run() -> None:
        try:
            runner.run()
        except MillstreamError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: state_of(topic) == "streaming", what="a capture", within_s=WITHIN_S)
    topic.define(f"postgresql://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop")
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    assert [type(one) for one in errors] == [NotApproved]
    assert server.heard == []


def test_a_runner_without_an_approval_does_not_end_the_run_of_another(
    topic: Topic, tmp_path: Path
) -> None:
    approved = Approval.of(topic.define(f"sqlite:///{shop_file(tmp_path)}"))
    runner = CaptureRunner(topic.client, topic.name, approval=approved)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        eventually(lambda: state_of(topic) == "streaming", what="a capture", within_s=WITHIN_S)
        with pytest.raises(NotApproved):
            CaptureRunner(topic.client, topic.name).run(once=True)
        assert state_of(topic) == "streaming"
        told = topic.control.capture(topic.name).status or {}
        eventually(
            lambda: (topic.control.capture(topic.name).status or {})["at_ms"] > told["at_ms"],
            what="another sign of life of the run",
            within_s=WITHIN_S,
        )
    finally:
        runner.stop()
        thread.join(WITHIN_S)


@pytest.mark.parametrize(
    "command",
    [
        ("capture", "run", "{name}", "--once"),
        ("capture", "check", "{name}"),
        ("capture", "add", "{name}", "--table", "notes"),
        ("capture", "drop", "{name}", "--yes"),
    ],
    ids=lambda command: command[1],
)
def test_no_command_connects_where_only_the_topic_says(
    topic: Topic, server: FakeServer, bootstrap: str, command: tuple[str, ...]
) -> None:
    topic.define(f"postgresql://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop")
    said = Cli(bootstrap).fail(*(word.format(name=topic.name) for word in command))
    assert f"millstream capture approve {topic.name}" in said
    assert SECRET not in said
    assert server.heard == []


@pytest.mark.parametrize(
    "user",
    ["mill:x@evil.example,b@", "mill:${AWS_SECRET}@evil.example,b@", "mill:@evil.example:5432,b@"],
)
def test_no_host_is_approved_that_what_is_shown_takes_for_a_password(
    topic: Topic, bootstrap: str, user: str
) -> None:
    """libpq ends the password at the first @, and urlsplit at the last: `good` would be shown."""
    url = f"postgresql://{user}good.example/shop"
    assert "evil" in str(conninfo_to_dict(url)["host"])  # the control
    topic.define(url)
    said = Cli(bootstrap).fail("capture", "approve", topic.name, "--yes")
    assert "has a password in it" in said
    assert not ApprovedCaptures(None).of(topic.control.log_id(), topic.name)


def shop_file(directory: Path) -> Path:
    file = directory / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    return file


def state_of(topic: Topic) -> str:
    return str((topic.control.capture(topic.name).status or {}).get("state"))


# --- the database itself --------------------------------------------------------------------------


class FakeDatabase(FakeServer):
    """Answers what it was told to, one answer for each message, and notes the messages."""

    def __init__(self, *answers: bytes, greets: bool = False) -> None:
        self.answers, self.greets = answers, greets
        super().__init__()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(WITHIN_S)
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        answers = list(self.answers)
        if self.greets:
            connection.sendall(answers.pop(0))
        while said := connection.recv(65_536):
            self.heard.append(said)
            if not answers:
                return
            connection.sendall(answers.pop(0))


@pytest.mark.parametrize("asked", [3, 5], ids=["in clear", "as md5"])
def test_a_server_that_poses_as_postgresql_gets_no_password(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    salt = b"salt" if asked == 5 else b""
    ask = b"R" + struct.pack(">ii", 8 + len(salt), asked) + salt
    monkeypatch.setattr(runner_module, "ONCE_FAILURES_MAX", 0)
    with contextlib.closing(FakeDatabase(ask)) as server:
        url = f"postgresql://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop?sslmode=disable"
        approved = Approval.of(topic.define(url))
        with pytest.raises(MillstreamError) as refused:
            CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
        assert "password" in str(refused.value)
        assert len(server.heard) == 1  # who it wants to be, and nothing behind it


@pytest.mark.parametrize(
    "plugin", ["mysql_clear_password", "dialog", "mysql_old_password", "sha256_password"]
)
def test_a_server_that_poses_as_mariadb_gets_no_password(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    """sha256_password seals it with a key that the server sends: on loopback that is left."""
    monkeypatch.setattr(logging_in, "is_loopback", lambda _host: False)
    switch = b"\xfe" + plugin.encode() + b"\0" + b"\x02Password: "
    answers = (mysql_packet(0, MYSQL_GREETING), mysql_packet(2, switch), mysql_packet(4, b"\x01k"))
    with contextlib.closing(FakeDatabase(*answers, greets=True)) as server:
        url = f"mariadb://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop"
        approved = Approval.of(topic.define(url))
        with pytest.raises(MillstreamError, match="its certificate is not checked"):
            CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
        assert len(server.heard) == 1
        assert SECRET.encode() not in b"".join(server.heard)


def test_a_server_whose_certificate_is_to_be_checked_gets_nothing_without_tls(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is between takes the offer of TLS out of the greeting. PyMySQL 1.1 then goes on."""
    monkeypatch.setattr(runner_module, "ONCE_FAILURES_MAX", 0)
    switch = mysql_packet(2, b"\xfemysql_clear_password\0")
    answers = (mysql_packet(0, MYSQL_GREETING), switch)
    ca = make_certificates(tmp_path) / "ca.pem"
    with contextlib.closing(FakeDatabase(*answers, greets=True)) as server:
        checked = f"ssl_ca={ca}&ssl_verify_identity=true&ssl_verify_cert=true"
        url = f"mariadb://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop?{checked}"
        approved = Approval.of(topic.define(url))
        with pytest.raises(UnsafeLogin, match="the server offers no TLS"):
            CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
        assert SECRET.encode() not in b"".join(server.heard)


def mysql_packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes((number,)) + payload


# Protocol 10, no TLS; PLUGIN_AUTH, SECURE_CONNECTION, PROTOCOL_41 and CONNECT_WITH_DB.
CAPABILITIES = 0x0008_8208
MYSQL_GREETING = (
    b"\x0a8.0.36\0"
    + struct.pack("<I", 7)
    + b"saltsalt\0"
    + struct.pack("<HBHH", CAPABILITIES & 0xFFFF, 45, 2, CAPABILITIES >> 16)
    + bytes((21,))
    + bytes(10)
    + b"saltsaltsalt\0"
    + b"mysql_native_password\0"
)


def test_a_server_that_poses_as_mysql_gets_no_password_by_a_key_of_its_own(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof is sent; that a server has not cached it, and wants the password, is refused."""
    monkeypatch.setattr(logging_in, "is_loopback", lambda _host: False)
    switch = mysql_packet(2, b"\xfecaching_sha2_password\0saltsaltsaltsaltsalt\0")
    wants_all = mysql_packet(4, b"\x01\x04")
    key = mysql_packet(6, b"\x01-----BEGIN PUBLIC KEY-----")
    greeting = mysql_packet(0, MYSQL_GREETING)
    with contextlib.closing(FakeDatabase(greeting, switch, wants_all, key, greets=True)) as server:
        url = f"mysql://mill:${{AWS_SECRET}}@127.0.0.1:{server.port}/shop"
        approved = Approval.of(topic.define(url))
        with pytest.raises(UnsafeLogin, match="ssl_verify_identity=true"):
            CaptureRunner(topic.client, topic.name, approval=approved).run(once=True)
        assert len(server.heard) == 2
