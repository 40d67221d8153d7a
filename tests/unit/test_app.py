from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream import App
from millstream.queues.asked import BadTerms

NOWHERE = "127.0.0.1:1"


def test_an_app_starts_nothing_before_something_needs_it(tmp_path: Path) -> None:
    data = tmp_path / "shop"
    with App("shop", data=data) as app:
        assert app.data == data
    assert not data.exists()


def test_the_data_of_an_app_is_named_after_it() -> None:
    assert App("shop").data == Path("shop.millstream")


@pytest.mark.parametrize("name", ["", ".", ".hidden", "a/b", "my shop", None])
def test_a_name_that_makes_no_directory_is_refused(name: Any) -> None:
    with pytest.raises(BadTerms, match="app's name"):
        App(name)


def test_an_app_has_one_queue_of_a_name() -> None:
    with App("shop", brokers=NOWHERE) as app:
        assert app.queue("jobs") is app.queue("jobs")
        assert app.queue("jobs") is not app.queue("mails")


def test_a_queue_asked_for_with_other_terms_is_refused() -> None:
    with App("shop", brokers=NOWHERE) as app:
        app.queue("jobs", attempts_max=3)
        with pytest.raises(BadTerms, match="other terms"):
            app.queue("jobs")


class StoppedJobs:
    """Jobs that would never end by themselves."""

    failures: Mapping[str, Any] = {}
    progress: Sequence[Any] = ()
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    def run(self, **_look: Any) -> None:
        assert self.is_stopped, "runs for ever"


def test_jobs_that_are_stopped_while_spark_starts_do_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("shop", brokers=NOWHERE)
    app.topic("clicks")
    app.job(to="copies", name="copies")(lambda clicks: clicks)

    def supervise(*_jobs: Any, **_terms: Any) -> StoppedJobs:
        app.stop()
        return StoppedJobs()

    monkeypatch.setattr(app.jobs, "_supervise", supervise)
    app.run()


@pytest.mark.parametrize("place", ["argument", "environment", "file"])
def test_a_broker_that_is_named_anywhere_is_used(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_BROKERS", raising=False)
    if place == "environment":
        monkeypatch.setenv("MILLSTREAM_BROKERS", NOWHERE)
    if place == "file":
        Path("millstream.toml").write_text(f'[client]\nbrokers = "{NOWHERE}"\n')
    with App("shop", brokers=NOWHERE if place == "argument" else None) as app:
        assert app.bootstrap == NOWHERE
