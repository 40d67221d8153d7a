"""CI passes over a test that fails once, and over nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci_run import FLAKES_MAX, Failures

ROOT = Path(__file__).parents[2]
SOUND = "def test_sound():\n    pass\n"
FLAKY = """
from pathlib import Path

def test_flaky():
    seen = Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("the first time")
"""
BROKEN = "def test_broken():\n    raise AssertionError('each time')\n"


def ci_run(folder: Path, *files: str) -> "subprocess.CompletedProcess[str]":
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "tests.ci_run", "-q"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_test_that_passes_the_second_time_is_named_with_its_first_traceback(
    tmp_path: Path,
) -> None:
    done = ci_run(tmp_path, SOUND, FLAKY)
    assert done.returncode == 0
    last_lines = done.stdout[done.stdout.index("flaky: ") :]
    assert last_lines.startswith("flaky: test_1.py::test_flaky\ncall: ")
    assert "AssertionError: the first time" in last_lines
    assert "test_sound" not in done.stdout


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = ci_run(tmp_path, FLAKY, BROKEN)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "flaky: test_0.py::test_flaky" in done.stdout
    assert "flaky: test_1.py" not in done.stdout


def failures(number: int) -> Failures:
    found = Failures()
    for test in range(number):
        report = pytest.TestReport(f"t{test}", ("", 0, ""), {}, "failed", "text", "call")
        found.pytest_runtest_logreport(report)
    return found


def test_only_few_failures_may_be_flakes() -> None:
    assert not failures(0).may_be_flakes
    assert failures(FLAKES_MAX).may_be_flakes
    assert not failures(FLAKES_MAX + 1).may_be_flakes


def test_a_file_that_cannot_be_read_is_no_flake() -> None:
    found = failures(1)
    found.pytest_collectreport(pytest.CollectReport("test_x.py", "failed", "text", []))
    assert not found.may_be_flakes
