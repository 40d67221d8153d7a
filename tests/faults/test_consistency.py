"""What Kafka promises, held against whole histories of clients and a broker that are hurt.

Producers, transactional producers, processors and readers work in processes of their own, while
the broker is killed, loses what it had not synced, and stands still, and the clients are killed,
paused, and replaced by others with their transactional id. Afterwards the checker looks at
everything that anybody asked and was told. docs/consistency.md says what it looks for.

MILLSTREAM_FAULT_SEED repeats a schedule of faults (not the operating system's timing).
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.consistency.anomaly import Anomaly, Report
from tests.faults.consistency.broker_under_test import Kafka, Millstream
from tests.faults.consistency.checker import check
from tests.faults.consistency.nemesis import BROKER_FAULTS
from tests.faults.consistency.planted import BUGS
from tests.faults.consistency.replacing import NothingToReplace, replace
from tests.faults.consistency.run import Run, run
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker_process import assert_no_traceback

SEED = int(os.environ.get("MILLSTREAM_FAULT_SEED") or 0)
SHORT_SECONDS, FULL_SECONDS, PLANTED_SECONDS = 6, 60, 7
PLANTED_TRIES_MAX = 8

# A run that did less than this proves nothing.
SHORT_FLOOR = Counter(acknowledged=100, committed=10, aborted=3, processed=3, read=500)
FULL_FLOOR = Counter(
    acknowledged=1500,
    committed=150,
    aborted=50,
    processed=20,
    read=5000,
    unknown=3,
    fenced=2,
    kill_broker=3,
    cut_power=3,
    kill_in_recovery=1,
    pause_broker=1,
    kill_client=1,
    raise_zombie=3,
)
KAFKA_FLOOR = Counter({deed: n for deed, n in FULL_FLOOR.items() if deed not in BROKER_FAULTS})


def run_millstream(directory: Path, *, seed: int, seconds: float) -> Run:
    broker = Millstream(directory / "data")
    try:
        done = run(broker, directory / "clients", seed=seed, seconds=seconds)
    finally:
        broker.end()
    assert_no_traceback(broker.diagnostics)
    return done


def assert_consistent(done: Run, floor: Counter[str]) -> None:
    assert not done.complaints, "\n".join(done.complaints)
    report = check(done.history)
    print(f"{dict(done.deeds)}\n{report}")
    assert report.anomalies == [], str(report)
    assert floor - done.deeds == Counter(), f"too little was done: {done.deeds}"


def test_a_broker_that_is_hurt_stays_consistent(tmp_path: Path) -> None:
    assert_consistent(run_millstream(tmp_path, seed=SEED, seconds=SHORT_SECONDS), SHORT_FLOOR)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [SEED + 1, SEED + 2, SEED + 3])
def test_a_broker_that_is_hurt_for_long_stays_consistent(seed: int, tmp_path: Path) -> None:
    assert_consistent(run_millstream(tmp_path, seed=seed, seconds=FULL_SECONDS), FULL_FLOOR)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_apache_kafka_is_held_to_the_same(tmp_path: Path) -> None:
    with ApacheKafka() as kafka:
        done = run(Kafka(kafka), tmp_path / "clients", seed=SEED + 1, seconds=FULL_SECONDS)
    assert_consistent(done, KAFKA_FLOOR)


# --- the checker catches what it should -------------------------------------------------------

ZOMBIES, KILLS, CUTS = ("raise_zombie",), ("kill_broker",), ("cut_power",)
ANY = None


class Catch(NamedTuple):
    """What a bug shows as, and which faults bring it out."""

    anomalies: set[Anomaly]
    faults: Sequence[str] | None


CATCHES = {
    "acknowledged_before_the_sync": Catch({Anomaly.LOST_WRITE}, CUTS),
    "duplicates_not_detected": Catch({Anomaly.DUPLICATE}, KILLS),
    "offset_given_twice": Catch({Anomaly.INCONSISTENT_OFFSET}, ANY),
    "commit_marker_forgotten": Catch({Anomaly.LOST_WRITE, Anomaly.HANGING_TRANSACTION}, ANY),
    "abort_marker_says_commit": Catch({Anomaly.ABORTED_READ}, ANY),
    "aborted_offsets_applied": Catch({Anomaly.UNPROCESSED_INPUT}, ANY),
    "predecessor_left_open": Catch({Anomaly.ABORTED_READ, Anomaly.HANGING_TRANSACTION}, ZOMBIES),
    "fencing_not_checked": Catch(
        {Anomaly.LOST_WRITE, Anomaly.ABORTED_READ, Anomaly.PRECOMMITTED_READ}, ZOMBIES
    ),
    "epoch_not_bumped": Catch(
        {Anomaly.LOST_WRITE, Anomaly.ABORTED_READ, Anomaly.PRECOMMITTED_READ}, ZOMBIES
    ),
    "last_stable_offset_ignored": Catch({Anomaly.PRECOMMITTED_READ}, ANY),
    "partitions_forgotten_at_restart": Catch(
        {Anomaly.LOST_WRITE, Anomaly.HANGING_TRANSACTION}, KILLS
    ),
}


def report_of_bug(bug: str, directory: Path, *, seed: int) -> Report:
    """What the checker finds. Clients may give up meanwhile: a bug that hangs lets them wait."""
    broker = Millstream(directory / "data", bug=bug)
    faults = CATCHES[bug].faults
    try:
        done = run(broker, directory / "clients", seed=seed, seconds=PLANTED_SECONDS, faults=faults)
    finally:
        broker.end()
    return check(done.history)


def test_every_planted_bug_is_looked_for() -> None:
    assert CATCHES.keys() == BUGS.keys()


def test_every_bug_finds_what_it_replaces() -> None:
    """In a process of its own: this one goes on without bugs."""
    plant = "from tests.faults.consistency.planted import BUGS; [bug() for bug in BUGS.values()]"
    subprocess.run([sys.executable, "-c", plant], check=True)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str, tmp_path: Path) -> None:
    found: set[Anomaly] = set()
    for number in range(PLANTED_TRIES_MAX):
        directory = tmp_path / str(number)
        directory.mkdir()
        report = report_of_bug(bug, directory, seed=SEED + number)
        print(report)
        found |= {finding.anomaly for finding in report.anomalies}
        if found & CATCHES[bug].anomalies:
            return
    pytest.fail(f"{bug} was not caught as {CATCHES[bug].anomalies}, only as {found}")


def test_a_bug_that_has_lost_its_function_is_no_silent_success() -> None:
    with pytest.raises(NothingToReplace, match="no 'is_renamed'"):
        replace(Millstream, "is_renamed", lambda original: original)
