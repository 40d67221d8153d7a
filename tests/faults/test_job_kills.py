"""Jobs whose driver, workers or broker are killed at every step: the output is that of a quiet run.

Which steps there are is in accidents/sitecustomize.py.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import App, Broker
from millstream.processing.jobs.checkpoints import LOCK
from millstream.processing.kafka_clients import make_topic
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from tests.clients.steps import Sent, produce
from tests.faults.killed_application import RUN_SECONDS_MAX, KilledApplication
from tests.support.waiting import eventually

APP = "tests.faults.killed_app"
EVENTS = 360
ACCOUNTS = 7
PARTITIONS = 3

VIEW_POINTS = ("view-before-write", "view-before-commit", "view-after-write")
TOPIC_POINTS = ("topic-after-begin", "topic-before-commit", "topic-after-commit")
CLAIM_POINTS = ("claim-after-begin", "claim-before-commit", "claim-after-commit")
DRIVER_POINTS = ("source-planned", *CLAIM_POINTS, *VIEW_POINTS, *TOPIC_POINTS)
WORKER_POINTS = ("source-before-read", *TOPIC_POINTS)
BROKER_POINTS = ("source-planned", "source-before-read", "view-before-write", *TOPIC_POINTS)

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


class Trial:
    """A broker with events, and an application that counts and copies them."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.jobs = KilledApplication(APP, directory, brokers=broker.bootstrap)
        self.note_broker()
        make_topic(broker.bootstrap, {}, "events", partitions=PARTITIONS, config={})
        produce(broker.bootstrap, "events", [sent(number) for number in range(EVENTS)])

    def note_broker(self) -> None:
        (self.jobs.accidents / "broker.pid").write_text(str(self.broker.pid))

    def restart_a_killed_broker(self) -> None:
        if not self.broker.is_running:
            self.broker.kill()
            self.broker.start()
            self.note_broker()

    def require_output_of_a_quiet_run(self) -> None:
        """Every event counted once in the view, and copied once into the topic."""
        with App("killed", data=self.jobs.data) as app:
            found = {row["account"]: row for row in app.view("totals").scan()}
        assert found == expected_totals()
        assert copies_in(self.broker.bootstrap) == [
            {"id": number, "double": 2 * number} for number in range(EVENTS)
        ]


def sent(number: int) -> Sent:
    """Spread over the partitions: a batch has a task for each, and dies between two of them."""
    return Sent(value=json.dumps(event(number)).encode(), partition=number % PARTITIONS)


def event(number: int) -> dict[str, Any]:
    return {"id": number, "account": f"account {number % ACCOUNTS}", "amount": number}


def expected_totals() -> dict[str, dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for one in map(event, range(EVENTS)):
        known = totals.setdefault(
            one["account"], {"account": one["account"], "events": 0, "amount": 0}
        )
        known["events"] += 1
        known["amount"] += one["amount"]
    return totals


def copies_in(bootstrap: str) -> list[dict[str, Any]]:
    """All that was committed; one that is there twice is seen twice."""
    read = TopicRead(brokers=bootstrap, topics=("copies",))
    rows = [
        json.loads(message.value() or b"null")
        for part, within in batch_ranges(read)
        for messages in RangeReader(read).read(part, within)
        for message in messages
    ]
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Broker(auto_create_topics=True) as broker:
        yield Trial(broker, tmp_path)


def test_a_driver_that_is_killed_at_every_step_leaves_the_output_of_a_quiet_run(
    trial: Trial,
) -> None:
    trial.jobs.plan("driver", *DRIVER_POINTS)
    trial.jobs.run_through()
    trial.require_output_of_a_quiet_run()


def test_an_application_outlives_its_workers_and_its_broker(trial: Trial) -> None:
    trial.jobs.plan("worker", *WORKER_POINTS)
    trial.jobs.plan("broker", *BROKER_POINTS)
    trial.jobs.require_success(meanwhile=trial.restart_a_killed_broker)
    trial.require_output_of_a_quiet_run()


@pytest.mark.parametrize(
    ("point", "job"), [("view-before-write", "totals"), ("topic-before-commit", "copies")]
)
def test_a_zombie_is_fenced_in_its_output(
    trial: Trial, point: str, job: str, tmp_path: Path
) -> None:
    """It is on another machine, so to say: the lock that it holds is not seen."""
    jobs, zombie_said = trial.jobs, tmp_path / "zombie.txt"
    jobs.plan("zombie", point)
    with jobs.started(said=zombie_said) as zombie:
        eventually(
            lambda: any(jobs.accidents.glob("stopped-*")),
            what="the zombie is stopped",
            within_s=RUN_SECONDS_MAX,
        )
        for lock in jobs.data.glob(f"jobs/*/{LOCK}"):
            lock.unlink()
        jobs.require_success()
        trial.require_output_of_a_quiet_run()
        wake(zombie, jobs.accidents)
        assert zombie.wait(RUN_SECONDS_MAX) == 1
    assert f"{job}: a newer run of it has started" in zombie_said.read_text()
    trial.require_output_of_a_quiet_run()


def wake(zombie: "subprocess.Popen[bytes]", accidents: Path) -> None:
    for file in accidents.glob("stopped-*"):
        os.kill(int(file.name.partition("-")[2]), signal.SIGCONT)
    os.killpg(zombie.pid, signal.SIGCONT)
