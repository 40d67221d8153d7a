"""`millstream run`: the application's file, and what is shown of its jobs."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.commands.app_file import AppNotFound, AppRaised, load_app
from millstream.commands.job_lines import JobLines, line_of, row_of
from millstream.jobs import SPARK_STARTS
from millstream.processing.jobs.progress import JobProgress

ONE = "import millstream\nshop = millstream.App('shop')\nshop.run()\n"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded changes the path of modules, and of Spark's workers."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")


def written(folder: Path, text: str) -> str:
    file = folder / f"app_{abs(hash(text))}.py"
    file.write_text(text)
    return str(file)


def test_the_app_of_a_file_is_found_and_does_not_run_yet(tmp_path: Path) -> None:
    app = load_app(written(tmp_path, ONE))
    assert (app.name, app.progress()) == ("shop", [])


def test_of_several_one_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "other = millstream.App('other')\n")
    with pytest.raises(AppNotFound, match=r"has 2 Apps \(other, shop\): name one"):
        load_app(file)
    assert load_app(f"{file}:other").name == "other"
    with pytest.raises(AppNotFound, match="has no App 'third'"):
        load_app(f"{file}:third")


def test_a_file_without_an_app_says_where_it_belongs(tmp_path: Path) -> None:
    within = "import millstream\ndef main():\n    shop = millstream.App('shop')\n"
    with pytest.raises(AppNotFound, match="makes no App where it is imported"):
        load_app(written(tmp_path, within))


def test_one_app_under_two_names_is_one(tmp_path: Path) -> None:
    assert load_app(written(tmp_path, ONE + "same = shop\n")).name == "shop"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AppNotFound, match="no such file"):
        load_app(str(tmp_path / "nothing.py"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\ny = 1 / 0\n", r":2: ZeroDivisionError: division by zero"),
        ("x = 1\nx = (\n", r":2: SyntaxError"),
        ("import nothing_of_that_name\n", r":1: ModuleNotFoundError"),
    ],
)
def test_what_a_file_raises_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(AppRaised, match=told):
        load_app(written(tmp_path, text))


def test_the_line_is_found_for_a_relative_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative.py").write_text("x = 1\n\ny = 1 / 0\n")
    with pytest.raises(AppRaised, match=r"relative\.py:3: ZeroDivisionError"):
        load_app("relative.py")


def test_modules_beside_the_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "names_of_shops.py").write_text("NAME = 'beside'\n")
    text = "import millstream, names_of_shops\napp = millstream.App(names_of_shops.NAME)\n"
    assert load_app(written(tmp_path, text)).name == "beside"


# What is shown


RUNNING = JobProgress(
    job="totals",
    state="running",
    batch=3,
    rows=1_234,
    rows_per_second=99.6,
    lag={"numbers": 7},
    state_rows=2,
    state_bytes=2_048,
    watermark="2026-07-01T12:00:00.000Z",
)


def test_a_line_says_what_there_is_to_say() -> None:
    assert line_of(JobProgress(job="totals")) == "totals: starting"
    assert line_of(RUNNING) == (
        "totals: running, 1,234 rows, 100/s, lag 7, watermark 2026-07-01T12:00:00.000Z"
    )
    failed = JobProgress(job="totals", state="waiting", restarts=2, error="no broker")
    assert line_of(failed) == "totals: waiting, 2 restarts (no broker)"
    again = replace(failed, state="running")
    assert line_of(again) == "totals: running, 2 restarts (the last: no broker)"
    stopped = replace(again, state="stopped")
    assert line_of(stopped) == "totals: stopped, 2 restarts (the last: no broker)"


def test_a_row_has_state_with_its_size() -> None:
    assert row_of(RUNNING)[6] == "2 (2KiB)"


def test_a_change_of_state_is_told_at_once_and_nothing_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = JobLines(as_json=True)
    for progress in (RUNNING, RUNNING, JobProgress(job="totals", state="done", rows=1_234)):
        lines.look([progress])
    states = [json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()]
    assert states == ["running", "done"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_the_start_is_told_in_lines_and_then_once_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    lines = JobLines(as_json=False, clock=clock)

    def told(at: float, *jobs: JobProgress) -> list[str]:
        clock.now = at
        lines.look(list(jobs))
        return capsys.readouterr().err.splitlines()

    starts = [JobProgress(job=name, stage=SPARK_STARTS) for name in ("totals", "pages")]
    assert told(0, *starts) == ["2 jobs: starting (Spark starts)"]
    assert told(5, *starts) == []
    assert told(11, *starts) == ["2 jobs: starting for 11 s (Spark starts)"]
    planned = JobProgress(job="totals", stage="its plan is made")
    assert told(12, planned) == ["totals: starting for 12 s (its plan is made)"]
    first = JobProgress(job="totals", state="running")
    assert told(20, first) == ["totals: running"]
    assert told(32, replace(first, busy_ms=12_000)) == [
        "totals: running, its first batch takes 12 s"
    ]
    assert told(33, RUNNING)[0].startswith("totals: running, 1,234 rows")
    assert told(34, replace(RUNNING, rows=2_000)) == []
    assert told(43, replace(RUNNING, rows=2_000))[0].startswith("totals: running, 2,000 rows")
    assert told(102, replace(RUNNING, rows=2_000)) == []
    assert told(104, replace(RUNNING, rows=2_000))[0].startswith("totals: running, 2,000 rows")


def test_a_failure_that_may_pass_is_one_line_with_the_file_that_has_all_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = JobLines(as_json=False, log=Path("data/logs/jobs.log"))
    lines.look([JobProgress(job="totals", state="waiting", restarts=1, error="no broker")])
    [line] = capsys.readouterr().err.splitlines()
    assert line == "totals: waiting, 1 restart (no broker); all of it: data/logs/jobs.log"
