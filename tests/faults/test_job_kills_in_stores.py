"""Jobs that keep one view in six stores, killed at every step: all six have exactly its rows.

All jobs come to a step, and are killed there together. After each kill the rows that a reader sees
are those of the position that it sees; people come, move and go all the while.
test_job_kills.py has the same for SQLite; test_store_kills.py has more steps, without Spark.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream import App, Broker
from tests.faults.killed_application import KilledApplication
from tests.faults.many_stores_app import choices, make_app
from tests.support.postgres_server import postgres_server
from tests.support.redis_server import RedisServer

APP = "tests.faults.many_stores_app"
PEOPLE, CITIES = 30, 12
CHANGES = 50  # between two kills
VIEWS = tuple(choices(".", "", ""))
READS = [f"source-before-read-of-{view}" for view in VIEWS]

STEPS = ("source-planned", "view-before-write", "view-before-commit", "view-after-write")

Row = dict[str, Any]

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


class People:
    """What was published: who is there, and at which offset it says so."""

    def __init__(self, app: App) -> None:
        self._app, self._random = app, Random(7)
        self._changes: list[Row] = []

    def live(self) -> None:
        """They come, move and age; every fourth change is of one who is gone."""
        changes = [self._change() for _ in range(CHANGES)]
        receipts = self._app.publish("people", changes)
        assert [receipt.offset for receipt in receipts][-1] == len(self._changes) + CHANGES - 1
        self._changes += changes

    def _change(self) -> Row:
        person = {"id": self._random.randrange(PEOPLE)}
        if self._random.random() < 0.25:
            return person | {"_change": "delete"}
        city = f"city {self._random.randrange(CITIES)}"
        return person | {"city": city, "age": self._random.randrange(40)}

    def adults(self, end: int) -> dict[int, Row]:
        """Of all changes before this offset."""
        last = {change["id"]: change for change in self._changes[:end]}
        return {id: one for id, one in last.items() if one.get("age", 0) >= 18}

    @property
    def end(self) -> int:
        return len(self._changes)


class Trial:
    def __init__(self, directory: Path, brokers: str, postgres: str, redis: str) -> None:
        self._servers = (postgres, redis)
        self.jobs = KilledApplication(
            APP, directory, brokers=brokers, env={"MILLSTREAM_ACCIDENTS_STORES": "all"}
        )
        self.app = make_app(str(self.jobs.data), postgres, redis, brokers=brokers)
        self.people = People(self.app)

    def kill_all_at(self, step: str, *how: str) -> None:
        self.people.live()
        self.jobs.plan(f"all-{len(VIEWS)}", step)
        self.jobs.require_killed(*self._servers, *how)
        for view in VIEWS:
            self.require_rows_of_its_position(view, after=f"a kill at {step}")

    def run_to_the_end(self, *how: str) -> None:
        self.people.live()
        self.jobs.require_success(*self._servers, *how)
        for view in VIEWS:
            assert self.require_rows_of_its_position(view, after="all") == self.people.end, view

    def require_rows_of_its_position(self, view: str, *, after: str) -> int:
        position, found = self._seen(view)
        assert found == self.people.adults(position), f"{view} after {after}"
        return position

    def _seen(self, view: str) -> tuple[int, dict[int, Row]]:
        with contextlib.closing(self.app.views.store(view).reader()) as reader:
            position = reader.position().get("people", {}).get(0, 0)
            return position, {row["id"]: row for row in reader.scan()}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Broker() as broker, postgres_server() as postgres, RedisServer() as redis:
        trial = Trial(tmp_path, broker.bootstrap, postgres.url, redis.url)
        with trial.app:
            yield trial


def test_jobs_that_are_killed_at_every_step_leave_exact_views_in_every_store(trial: Trial) -> None:
    for step in STEPS:
        trial.kill_all_at(step)
    trial.kill_all_at("view-before-commit", "staged")
    trial.jobs.plan("worker", *READS, "part-before-stage", "part-after-stage")
    trial.run_to_the_end("staged")
