"""Views of views, and rebuilds, whose driver is killed at every step: as if nothing had happened.

Which steps there are is in accidents/sitecustomize.py.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import App, Broker
from millstream.processing.kafka_clients import make_topic
from tests.clients.steps import Sent, produce
from tests.faults.chained_app import make_app
from tests.faults.killed_application import KilledApplication

APP = "tests.faults.chained_app"
MOVES = 240
PEOPLE = 40
PARTITIONS = 2

CHANGE_POINTS = (
    "view-before-write",
    "changes-before-write",
    "claim-before-commit",
    "claim-after-commit",
    "changes-after-write",
)
REBUILD_POINTS = (
    "generation-before-begin",
    "generation-after-begin",
    "view-after-write",
    "view-before-serve",
    "view-after-serve",
    "generation-after-settle",
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def move(number: int) -> dict[str, Any]:
    """People go round the cities; every seventh move is their last for a while."""
    city = f"city {number % 5}"
    return {"number": number, "id": number % PEOPLE, "city": city, "gone": number % 7 == 0}


def homes() -> dict[int, str]:
    found: dict[int, str] = {}
    for one in map(move, range(MOVES)):
        found.pop(one["id"], None)
        if not one["gone"]:
            found[one["id"]] = one["city"]
    return found


class Trial:
    """A broker with moves, and an application that follows them."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._jobs = KilledApplication(APP, directory, brokers=broker.bootstrap)
        make_topic(broker.bootstrap, {}, "moves", partitions=PARTITIONS, config={})
        produce(broker.bootstrap, "moves", [sent(number) for number in range(MOVES)])

    def run_through(self, *arguments: str, points: tuple[str, ...] = ()) -> None:
        self._jobs.plan("driver", *points)
        self._jobs.run_through(*arguments)

    def app(self) -> App:
        return make_app(str(self._jobs.data))


def sent(number: int) -> Sent:
    """All moves of one person are in one partition."""
    one = move(number)
    return Sent(value=json.dumps(one).encode(), partition=one["id"] % PARTITIONS)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Broker() as broker:
        yield Trial(broker, tmp_path)


def test_a_view_of_a_view_misses_no_change_and_has_none_twice(trial: Trial) -> None:
    trial.run_through(points=CHANGE_POINTS)
    with trial.app() as app:
        assert {row["id"]: row["city"] for row in app.view("homes").scan()} == homes()
        counts = {row["city"]: row["people"] for row in app.view("cities").scan()}
    assert counts == dict(Counter(homes().values()))


def test_a_rebuild_goes_on_where_it_was_killed(trial: Trial) -> None:
    trial.run_through()
    trial.run_through("rebuild", points=REBUILD_POINTS)
    with trial.app() as app:
        assert {row["id"]: row["city"] for row in app.view("homes").scan()} == homes()
        found = app.views.store("homes").generations()
    assert [(one.number, one.is_served) for one in found] == [(1, False), (2, True)]
