"""docs/guides/security.md: its commands run as they are written, and its broker serves."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.readable import is_readable

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "security.md"
BLOCK = re.compile(r"```(console|toml)\n(.*?)```", re.DOTALL)
BROKER = "millstream broker"
WITHIN_S = 60.0


def steps() -> list[tuple[str, str]]:
    """("toml", the file) and ("console", a command), in the guide's order."""
    found = []
    for kind, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        lines = [line for line in text.splitlines() if line.startswith("$ ")]
        found += [(kind, text)] if kind == "toml" else [(kind, line[2:]) for line in lines]
    return found


@contextmanager
def running_broker(folder: Path, env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(BROKER.split(), cwd=folder, env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert is_readable(process.stdout, WITHIN_S), "the broker is not ready"
        assert b"ready on 127.0.0.1:" in process.stdout.readline()
        yield
    finally:
        process.terminate()
        assert process.wait(WITHIN_S) == 0
        if process.stdout is not None:
            process.stdout.close()


def run(command: str, folder: Path, env: dict[str, str]) -> str:
    if command.startswith("export "):
        env |= dict(pair.split("=", 1) for pair in command.split()[1:])
        return ""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.full
def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    all_steps = steps()
    start = all_steps.index(("console", BROKER))
    for kind, text in all_steps[:start]:
        if kind == "toml":
            (tmp_path / "millstream.toml").write_text(text)
        else:
            run(text, tmp_path, env)
    with running_broker(tmp_path, env):
        said = "".join(run(text, tmp_path, env) for _, text in all_steps[start + 1 :])
    assert re.search(r"ada +SCRAM-SHA-256, SCRAM-SHA-512", said)
    assert "first order" in said
    assert len((tmp_path / "ada.password").read_text().strip()) >= 32
