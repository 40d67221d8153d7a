"""The committed message files are what their generator writes today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wire_messages_are_what_the_generator_writes() -> None:
    command = [sys.executable, str(ROOT / "codegen" / "wire_messages.py"), "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, f"run codegen/wire_messages.py\n{check.stdout}{check.stderr}"
