"""`millstream events`, on our broker and on Apache Kafka."""

import json
from pathlib import Path

import pytest

from millstream import App
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.stored_event import NewEvent
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli

APP = """
from millstream import Aggregate, App, event

@event
class Deposited:
    amount: int

class Account(Aggregate):
    balance = 0
    def deposit(self, amount):
        yield Deposited(amount)
    def on_Deposited(self, found):
        self.balance += found.amount

app = App("{name}", brokers="{brokers}", data="{data}")
bank = app.aggregates(Account)
"""


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def name(bootstrap: str) -> str:
    """An app with the events of two accounts."""
    name = unique_name("bank")
    with EventStore({"bootstrap.servers": bootstrap}, f"{name}.events", partitions=2) as store:
        for stream in ("Account:alice", "Account:bob", "Cart:7"):
            event = NewEvent(type="Deposited", data=b'{"amount":5}', tags=(stream,))
            store.append(stream, [event], meta={"by": "ada", "why": "opening"})
        store.append("Account:alice", [NewEvent(type="Deposited", data=b'{"amount":900}')])
    return name


def test_streams_are_listed(cli: Cli, name: str) -> None:
    found = cli.json("events", "list", name)
    assert {(one["stream"], one["version"]) for one in found} == {
        ("Account:alice", 2),
        ("Account:bob", 1),
        ("Cart:7", 1),
    }
    shown = cli.run("events", "list", f"{name}.events", "--prefix", "Account:")
    assert "Account:alice" in shown
    assert "Cart" not in shown
    assert len(cli.json("events", "list", name, "--limit", "1")) == 1
    assert "no topic nobody" in cli.fail("events", "list", "nobody").replace("  ", " ")


def test_a_stream_is_shown_with_who_and_why(cli: Cli, name: str) -> None:
    shown = cli.run("events", "show", name, "Account:alice")
    assert all(word in shown for word in ("Deposited", '{"amount":5}', "ada", "opening"))
    [first, second] = cli.json("events", "show", name, "Account:alice")
    assert (first["version"], first["data"], first["meta"]["by"]) == (1, {"amount": 5}, "ada")
    assert cli.json("events", "show", name, "Account:alice", "--after", "1") == [second]
    assert "has no stream Account:eve" in cli.fail("events", "show", name, "Account:eve")


def test_events_are_followed_from_a_place_on(cli: Cli, name: str) -> None:
    lines = cli.run("events", "follow", name, "--once", "--json").splitlines()
    assert len(lines) == 4
    tagged = cli.run("events", "follow", name, "--once", "--tag", "Cart:7").splitlines()
    assert len(tagged) == 1
    assert "Cart:7 1  Deposited" in tagged[0]
    token = cli.said("events", "follow", name, "--once").strip().removeprefix("--after ")
    assert cli.run("events", "follow", name, "--once", "--after", token) == ""
    assert "is no token" in cli.fail("events", "follow", name, "--after", "nonsense")


def test_what_was_written_is_verified(cli: Cli, name: str) -> None:
    assert "is as it was written" in cli.run("events", "verify", name)
    assert cli.json("events", "verify", name, "--stream", "Account:alice") == []
    forged = cli.json("events", "show", name, "Account:bob")[0] | {"seq": 99, "version": 2}
    cli.run("produce", f"{name}.events", stdin=json.dumps(forged))
    told = cli.fail("events", "verify", name, exit_code=74)
    assert "is not what was written: 1 finding" in told


def test_an_event_is_shunned_by_the_application_it_belongs_to(
    cli: Cli, bootstrap: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{name.replace('-', '_')}.py"
    file.write_text(APP.format(name=name, brokers=bootstrap, data=tmp_path / "data"))
    mistake = cli.json("events", "show", name, "Account:alice")[1]["id"]
    said = cli.run(
        *("events", "shun", str(file), "Account:alice", mistake, "--why", "a 9 too many", "-y")
    )
    assert "without event" in said
    shown = cli.json("events", "show", name, "Account:alice")
    assert [one["is_shunned"] for one in shown] == [False, True, False]
    assert shown[2]["meta"]["why"] == "a 9 too many"
    told = cli.fail("events", "shun", str(file), "Order:1", mistake, "--why", "?", "-y")
    assert "has no aggregate for stream 'Order:1'" in told
    with App(name, brokers=bootstrap, data=tmp_path / "data") as app:
        assert app.event_store().version("Account:alice") == 3


def test_every_command_takes_the_file_of_the_app(
    cli: Cli, name: str, bootstrap: str, tmp_path: Path
) -> None:
    """The file knows its broker: none has to be named."""
    file = tmp_path / "bank.py"
    file.write_text(APP.format(name=name, brokers=bootstrap, data=tmp_path / "data"))
    nowhere = Cli("127.0.0.1:1")
    assert len(nowhere.json("events", "list", str(file))) == 3
    assert len(nowhere.json("events", "show", f"{file}:app", "Account:alice")) == 2
    assert "as it was written" in nowhere.run("events", "verify", str(file))
    assert len(nowhere.run("events", "follow", str(file), "--once").splitlines()) == 4
