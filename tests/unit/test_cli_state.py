"""`millstream state` without Spark: whose data, which job."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli import app
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.state.checkpoint_copy import copy_job


def output_of(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["state", *arguments])
    return found.exit_code, found.output.strip()


def test_an_unknown_job_is_told_with_those_that_have_run(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "counts").mkdir(parents=True)
    for arguments in (["show", "count"], ["copy", "count", "x"], ["repartition", "count", "2"]):
        code, told = output_of(*arguments, "--data", str(tmp_path))
        assert code == 1
        assert told == f"millstream: no job count has run in {tmp_path}. There are: counts."


def test_a_restore_needs_a_copy(tmp_path: Path) -> None:
    code, told = output_of("restore", "counts", str(tmp_path), "--data", str(tmp_path), "--yes")
    assert (code, "is not a copy of a job (it has no copy.json)" in told) == (1, True)


def test_a_job_that_runs_is_left_alone(tmp_path: Path) -> None:
    job = JobDirectory(tmp_path / "jobs" / "counts", job="counts")
    job.write(first_manifest("counts", PlanShape(sources={}), "code", {}))
    copy_job(job, tmp_path / "copy", view=None, now_ms=7)
    with job.held():
        for arguments in (
            ["copy", "counts", str(tmp_path / "new")],
            ["restore", "counts", str(tmp_path / "copy"), "--yes"],
            ["repartition", "counts", "2"],
        ):
            code, told = output_of(*arguments, "--data", str(tmp_path))
            assert told == (
                f"millstream: job counts runs already in process {os.getpid()}: end that first, or "
                "wait for it."
            )
            assert code == 75
    assert not (tmp_path / "new").exists()
    assert output_of("copy", "counts", str(tmp_path / "new"), "--data", str(tmp_path))[0] == 0


def test_the_only_data_here_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_of("show", "counts") == (
        2,
        "millstream: say whose data, with --data DIR (here are: none).",
    )
    Path("shop.millstream").mkdir()
    assert "no job counts has run in shop.millstream" in output_of("show", "counts")[1]
    Path("bank.millstream").mkdir()
    assert "(here are: bank.millstream, shop.millstream)" in output_of("show", "counts")[1]
