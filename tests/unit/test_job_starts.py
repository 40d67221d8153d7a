"""The jobs of an application start one after the other, whichever way it is run."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import App
from millstream.commands.run import _run
from millstream.jobs import Jobs
from millstream.processing.jobs.supervisor import Supervisor
from tests.support.pretended_run import PretendedRun
from tests.support.waiting import eventually


def by_program(app: App) -> None:
    app.run()


def by_command(app: App) -> None:
    _run(app, once=False, only=None, rebuild=[], repeat_side_effects=False, listen=None, json=False)


@pytest.fixture
def app(tmp_path: Path) -> App:
    """Of two jobs. No broker is asked."""
    app = App("shop", data=tmp_path / "data", brokers="127.0.0.1:1")
    app.topic("clicks", schema="url STRING")
    for name in ("first", "second"):
        app.view(key="url", name=name)(lambda clicks: clicks)
    return app


@pytest.mark.parametrize("run", [by_program, by_command])
def test_the_second_job_starts_when_the_first_has_done_a_batch(
    run: Callable[[App], None], app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = runs = [PretendedRun(name) for name in app.catalog.jobs]

    def supervise(jobs: Any, *_: object, **__: object) -> Supervisor:
        supervisor = jobs._supervisor = Supervisor(list[Any](runs))
        return supervisor

    with running(app, run, supervise, monkeypatch):
        eventually(first.is_started.is_set, what="the first job", within_s=30)
        assert not second.is_started.wait(0.6)
        first.do_a_batch()
        eventually(second.is_started.is_set, what="the second job", within_s=30)


def test_while_spark_starts_the_terminal_and_other_processes_see_that_it_does(
    app: App, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It takes a minute on a busy laptop; without a terminal nothing was said meanwhile."""
    spark_has_started, printed = threading.Event(), ""

    def supervise(jobs: Any, *_: object, **__: object) -> Supervisor:
        assert spark_has_started.wait(30)
        runs = [PretendedRun(name) for name in app.catalog.jobs]
        supervisor = jobs._supervisor = Supervisor(list[Any](runs))
        return supervisor

    def is_announced() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        status = app.jobs.status("second")
        is_seen = status is not None and status.progress.stage == "Spark starts"
        return is_seen and "2 jobs: starting (Spark starts)" in printed

    with running(app, by_command, supervise, monkeypatch):
        try:
            eventually(is_announced, what="a line and a status of each job", within_s=30)
        finally:
            spark_has_started.set()


@contextlib.contextmanager
def running(
    app: App,
    run: Callable[[App], None],
    supervise: Callable[..., Supervisor],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """The app runs, with that in place of what starts Spark."""
    monkeypatch.setattr(Jobs, "_supervise", supervise)
    monkeypatch.setattr(Jobs, "make_topics", lambda *_, **__: None)
    thread = threading.Thread(target=run, args=[app])
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join(30)
    assert not thread.is_alive()
