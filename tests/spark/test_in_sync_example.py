"""The example of systems that are kept in sync, as its guide shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "in_sync.py"
TOLD = re.compile(r"(.+): the three disagree on (\d+) of (\d+) items")


@pytest.mark.full
@pytest.mark.timeout(300)
def test_dual_writes_come_apart_and_the_log_does_not(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--updates", "1000"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told = {found[1]: (int(found[2]), int(found[3])) for found in TOLD.finditer(done.stdout)}
    assert told["Dual writes"][0] > 0
    assert told["Through the log"] == (0, told["Dual writes"][1])
