"""The keyring over a topic of a real broker, ours and Apache Kafka; several processes at a time."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from millstream.base.log_clients import LogNotReached
from millstream.embedded import Broker
from millstream.eventsourcing.key_book import Remark, SubjectForgotten
from millstream.eventsourcing.key_store import KeyDirectory
from millstream.eventsourcing.key_topic import KeyTopic, UnfitKeyTopic
from millstream.eventsourcing.keyring import Keyring
from millstream.eventsourcing.sealing import take_apart
from tests.support.waiting import eventually

NOW = Remark(datetime(2026, 11, 18, tzinfo=UTC), by="ada", why="she asked")
PLACE = bytes(16)
PROCESS_SECONDS_MAX = 60.0
# Forgets a subject, and is killed (-9) at the step of this number; else it ends with 0.
KILLED = """
import os, sys
from datetime import datetime, UTC
from pathlib import Path
from millstream.eventsourcing.key_book import Remark
from millstream.eventsourcing.key_store import KeyDirectory
from millstream.eventsourcing.key_topic import KeyTopic
from millstream.eventsourcing.keyring import Keyring

brokers, topic, path, left = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])

def step():
    global left
    if left == 0:
        os.kill(os.getpid(), 9)
    left -= 1

def stepping(kind, name):
    call = getattr(kind, name)
    def run(*args, **named):
        step()
        found = call(*args, **named)
        step()
        return found
    setattr(kind, name, run)

stepping(KeyTopic, "_commit")
stepping(KeyTopic, "_put")
stepping(KeyDirectory, "keep")
stepping(KeyDirectory, "destroy")
keyring = Keyring(KeyTopic({"bootstrap.servers": brokers}, topic), KeyDirectory(path))
keyring.forget(["ada"], Remark(datetime.now(UTC)))
"""


class KeyringContract:
    """Subclasses say which broker."""

    @pytest.fixture
    def brokers(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def topic(self) -> str:
        return f"shop-{uuid4().hex[:8]}.keys"

    @pytest.fixture
    def processes(self, brokers: str, topic: str, tmp_path: Path) -> Iterator[list[Keyring]]:
        client = {"bootstrap.servers": brokers}
        store = KeyDirectory(tmp_path / "keyring")
        made = [Keyring(KeyTopic(client, topic), store) for _ in range(3)]
        yield made
        for one in made:
            one.close()

    def test_what_one_process_seals_another_opens_until_it_is_forgotten(
        self, processes: list[Keyring]
    ) -> None:
        one, other, third = processes
        of_ada, of_bob = sealed(one, "ada"), sealed(other, "bob")
        assert opened(other, of_ada) == opened(third, of_bob) == b"secret"
        other.forget(["ada"], NOW)
        eventually_forgotten(one, of_ada)
        assert opened(one, of_bob) == b"secret"
        with pytest.raises(SubjectForgotten):
            one.key_for("ada")
        assert third.consent("ada", NOW)
        new = sealed(third, "ada")
        assert opened(one, new) == b"secret"
        assert opened(third, of_ada) is None

    def test_processes_that_forget_and_add_at_the_same_time_all_succeed(
        self, processes: list[Keyring]
    ) -> None:
        names = [f"s{number}" for number in range(6)]
        tokens = {name: sealed(processes[0], name) for name in names}
        failures: list[BaseException] = []

        def run(number: int) -> None:
            try:
                processes[number].forget([names[number]], NOW)
                tokens[f"new{number}"] = sealed(processes[number], f"new{number}")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=[number]) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        reader = processes[0]
        for name in names[:3]:
            eventually_forgotten(reader, tokens.pop(name))
        assert {opened(reader, token) for token in tokens.values()} == {b"secret"}
        assert not reader.is_unfinished

    def test_a_topic_that_is_of_another_shape_is_refused(
        self, brokers: str, topic: str, tmp_path: Path
    ) -> None:
        keys = KeyTopic({"bootstrap.servers": brokers}, topic)
        keys._topics.make(topic, partitions=2, config={})
        keyring = Keyring(keys, KeyDirectory(tmp_path / "keyring"))
        with pytest.raises(UnfitKeyTopic, match="has 2 partitions"):
            keyring.key_for("ada")
        keyring.close()


class TestOurBroker(KeyringContract):
    @pytest.fixture
    def brokers(self, millstream_broker: Broker) -> str:
        return millstream_broker.bootstrap

    @pytest.mark.parametrize("number", [3, 9])
    def test_an_erasure_that_was_killed_is_complete_after_the_next(
        self, brokers: str, topic: str, processes: list[Keyring], tmp_path: Path, number: int
    ) -> None:
        assert is_killed_and_completed(brokers, topic, processes, tmp_path, number)


@pytest.mark.full
class TestApacheKafka(KeyringContract):
    @pytest.fixture
    def brokers(self, apache_kafka: str) -> str:
        return apache_kafka


@pytest.mark.full
def test_an_erasure_is_complete_after_a_kill_at_any_step(
    millstream_broker: Broker, tmp_path: Path
) -> None:
    client, number = {"bootstrap.servers": millstream_broker.bootstrap}, 0
    while True:
        topic, path = f"killed-{number}.keys", tmp_path / f"{number}"
        path.mkdir()
        store = KeyDirectory(path / "keyring")
        processes = [Keyring(KeyTopic(client, topic), store) for _ in range(2)]
        was_killed = is_killed_and_completed(
            millstream_broker.bootstrap, topic, processes, path, number
        )
        for one in processes:
            one.close()
        if not was_killed:
            break
        number += 1
    assert number > 14


def is_killed_and_completed(
    brokers: str, topic: str, processes: list[Keyring], path: Path, number: int
) -> bool:
    """Whether it was killed. Either way the next run finds, or makes, the erasure complete."""
    of_ada, of_bob = sealed(processes[0], "ada"), sealed(processes[0], "bob")
    before = wrapping_keys(path)
    command = [sys.executable, "-c", KILLED, brokers, topic, str(path / "keyring"), str(number)]
    ended = subprocess.run(command, timeout=PROCESS_SECONDS_MAX, check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    processes[1].forget(["ada"], NOW)
    assert opened(processes[1], of_ada) is None
    assert opened(processes[1], of_bob) == b"secret"
    assert not processes[1].is_unfinished
    assert before
    assert not before & wrapping_keys(path)
    return ended.returncode != 0


def wrapping_keys(path: Path) -> set[bytes]:
    return {file.read_bytes() for file in (path / "keyring").glob("wrapping-*")}


def test_a_key_is_not_used_when_the_topic_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cannot know whether it was forgotten must not open it."""
    monkeypatch.setattr("millstream.base.log_clients.PATIENCE_SECONDS", 1.0)
    now = [0.0]
    with Broker(tmp_path / "data") as broker:
        keys = KeyTopic({"bootstrap.servers": broker.bootstrap}, "shop.keys")
        keyring = Keyring(keys, KeyDirectory(tmp_path / "keyring"), clock=lambda: now[0])
        token = sealed(keyring, "ada")
    assert opened(keyring, token) == b"secret"
    now[0] = 1.001
    with pytest.raises(LogNotReached):
        opened(keyring, token)
    keyring.close()


def sealed(keyring: Keyring, subject: str) -> str:
    return keyring.key_for(subject).seal(b"secret", PLACE)


def opened(keyring: Keyring, token: str) -> bytes | None:
    found = take_apart(token, place="")
    key = keyring.key_of(found.key_id)
    return None if key is None else key.open(found)


def eventually_forgotten(keyring: Keyring, token: str) -> None:
    """At the latest when the topic must be read again."""
    eventually(
        lambda: opened(keyring, token) is None, what="forgotten", within_s=PROCESS_SECONDS_MAX
    )
