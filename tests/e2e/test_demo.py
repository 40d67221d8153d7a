"""The shop of `millstream demo`, headless: figures move, and views are what the database has."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.demo.chaos import Chaos
from millstream.demo.database import home_for
from millstream.demo.figures import opened_figures
from millstream.demo.show import Show
from millstream.demo.stage import Stage, Terms
from tests.support.no_java import without_java
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]

WITHIN_S = 400.0


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """The database of root is elsewhere: it is removed too."""
    yield tmp_path / "shop"
    home = home_for(tmp_path / "shop")
    for place in (home, home.with_name(f"{home.name}-programs")):
        shutil.rmtree(place, ignore_errors=True)


def terms(data: Path) -> Terms:
    return Terms(data=data, rate=20, listen="127.0.0.1:0", broker_listen="127.0.0.1:0")


def demo(data: Path, *words: str) -> "subprocess.Popen[str]":
    free = ["--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0", "--data", str(data)]
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", "demo", *words, *free],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_figures_move_and_views_come_to_what_the_database_has(data: Path) -> None:
    stage = Stage(terms(data), tell=lambda _text: None)
    told: list[str] = []
    try:
        stage.start()
        with stage.reader() as app, opened_figures(app, stage.database) as figures:
            show = Show(stage, figures, tell=told.append, started=0.0)
            eventually(lambda: len(show.look().headlines) == 6, what="views", within_s=WITHIN_S)
            first = show.look()
            eventually(
                lambda: show.look().headlines["visits"] != first.headlines["visits"],
                what="a view that moves",
                within_s=WITHIN_S,
            )
            assert sum(show.look().records.values()) > sum(first.records.values())
            assert stage.generator.told.done["orders"] > 0
            stage.pause()
            chaos = Chaos(stage, figures, tell=told.append, update=lambda _lines: None)
            resting = stage.generator.told
            eventually(lambda: resting.is_resting, what="rest", within_s=WITHIN_S)
            compared = chaos.settled()
    finally:
        stage.close()
    assert all(one.is_equal for one in compared), compared
    assert any("records in the log" in line for line in told)
    assert any("first new row of a view" in line for line in told)


def test_a_demo_ends_by_itself_or_by_ctrl_c_and_goes_on_where_it_stopped(data: Path) -> None:
    first = demo(data, "--seconds", "30", "--no-browser", "--plain")
    out, err = first.communicate(timeout=WITHIN_S)
    assert first.returncode == 0, err
    assert "first figure, records in the log: after" in out
    assert err.endswith(f"stopping; all is kept in {data}: the next demo goes on there\n")
    before = max(int(count.replace(",", "")) for count in re.findall(r"(\d[\d,]*) records,", out))

    second = demo(data, "--no-browser", "--plain")
    watchdog = threading.Timer(WITHIN_S, second.kill)
    watchdog.start()
    assert second.stdout is not None
    seen = ""
    while not (found := re.search(r"(\d[\d,]*) records, [1-9]", seen)):
        line = second.stdout.readline()
        assert line, "it ended too soon"
        seen = line
    second.send_signal(signal.SIGINT)
    _, err = second.communicate(timeout=WITHIN_S)
    watchdog.cancel()
    assert second.returncode == 0, err
    assert int(found[1].replace(",", "")) >= before
    assert "Traceback" not in err


@pytest.mark.parametrize("rounds", [3, pytest.param(10, marks=pytest.mark.long)])
def test_totals_are_equal_after_every_death(data: Path, rounds: int) -> None:
    chaos = demo(data, "chaos", "--rounds", str(rounds), "--plain")
    out, err = chaos.communicate(timeout=1_700)
    assert chaos.returncode == 0, f"{out}\n{err}\n{(data / 'up.log').read_text()[-3000:]}"
    assert out.count("totals equal after") == rounds + 1
    assert "DIFFER" not in out


def test_what_is_missing_is_told_in_one_line(data: Path, tmp_path: Path) -> None:
    env = without_java(tmp_path)
    command = [sys.executable, "-m", "millstream", "demo", "--data", str(data)]
    done = subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 1
    assert done.stderr.startswith("millstream: Spark needs Java 17 or newer, and there is none")
    assert len(done.stderr.splitlines()) == 1
