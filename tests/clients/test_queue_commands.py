"""`millstream queues`, on our broker and on Apache Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest

from millstream import Job, Queue
from tests.clients.steps import eventually, unique_name
from tests.clients.test_cli_commands import Cli

WITHIN_S = 30.0


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def queue(bootstrap: str) -> Iterator[Queue]:
    with Queue(unique_name("jobs"), {"bootstrap.servers": bootstrap, "log_level": 2}) as opened:
        yield opened


def next_job(queue: Queue) -> Job:
    job = queue.get(WITHIN_S)
    assert job is not None
    return job


def test_jobs_that_were_put_by_command_are_done_by_an_application(cli: Cli, queue: Queue) -> None:
    name = queue.name
    assert cli.run("queues", "put", name, '{"user": 7}') == f"Put 1 job into queue {name}\n"
    cli.run("queues", "put", name, "--key", "ada", stdin="1\n2\n")
    jobs = [next_job(queue) for _ in range(3)]
    assert [(job.value, job.key) for job in jobs] == [
        ({"user": 7}, None),
        (1, "ada"),
        (2, "ada"),
    ]
    assert "not a value of a queue of json" in cli.fail("queues", "put", name, "{")


def test_a_queue_is_listed_and_shown_with_its_workers_and_what_waits(
    cli: Cli, queue: Queue
) -> None:
    queue.put_many(range(3))
    next_job(queue).ack()
    eventually(lambda: _shown(cli, queue)["waiting"] == 2, what="two jobs that wait")
    shown = _shown(cli, queue)
    assert (shown["state"], len(shown["workers"]), shown["dead"]) == ("stable", 1, 0)
    assert [(one["partition"], one["waiting"]) for one in shown["partitions"]] == [(0, 2)]
    listed = {one["queue"]: one for one in cli.json("queues", "list")}
    assert listed[queue.name]["waiting"] == 2
    assert queue.name in cli.run("queues", "list")
    assert f"Queue {queue.name}: stable" in cli.run("queues", "show", queue.name)


def _shown(cli: Cli, queue: Queue) -> dict[str, Any]:
    shown: dict[str, Any] = cli.json("queues", "show", queue.name)
    return shown


def test_dead_letters_are_listed_with_their_history_and_put_back_once(
    cli: Cli, queue: Queue
) -> None:
    queue.put_many(["a", "b"])
    for _ in range(2):
        next_job(queue).reject("no such user")
    first, second = cli.json("queues", "dead", queue.name)
    assert (first["reason"], first["deliveries"], first["value"]) == ("no such user", 1, '"a"')
    assert "no such user" in cli.run("queues", "dead", queue.name)
    redrive = ("queues", "redrive", queue.name, "--yes")
    assert "say which letters" in cli.fail(*redrive, exit_code=2)
    assert cli.json(*redrive, "--id", first["id"]) == [{"id": first["id"]}]
    assert cli.json(*redrive, "--id", first["id"]) == []
    assert [one["id"] for one in cli.json("queues", "dead", queue.name)] == [second["id"]]
    next_job(queue).reject("still not")
    again = cli.json("queues", "dead", queue.name)[-1]
    assert [one["reason"] for one in again["history"]] == ["no such user"]
    assert len(cli.json(*redrive, "--all")) == 2
    assert "Nothing to put back" in cli.said(*redrive, "--all")
    assert len(cli.json("queues", "dead", queue.name, "--redriven")) == 3


def test_a_redrive_asks_first(cli: Cli, queue: Queue) -> None:
    queue.put("a")
    next_job(queue).reject("no")
    said = cli.fail("queues", "redrive", queue.name, "--all", exit_code=2)
    assert "Pass --yes" in said
    assert len(queue.dead_letters()) == 1


@pytest.mark.parametrize("command", [["show"], ["dead"], ["redrive", "--all"]])
def test_a_queue_that_does_not_exist_is_not_made(cli: Cli, command: list[str]) -> None:
    name = unique_name("none")
    assert f"Queue {name} does not exist" in cli.fail("queues", *command, name)
    assert name not in cli.run("topics", "list")
