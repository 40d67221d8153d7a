"""examples/log_demo.py runs, through two kill -9 of the broker and one of a worker."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "log_demo.py"


@pytest.mark.full
def test_the_demo_of_the_log_ends_well() -> None:
    command = [sys.executable, str(EXAMPLE), "20000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Done" in done.stdout
