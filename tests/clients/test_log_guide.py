"""docs/guides/log_and_replay.md: its commands and its Python run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

from millstream import Broker

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "log_and_replay.md"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
WITHIN_S = 60.0


def steps() -> list[list[str]]:
    """The commands of the guide, in its order."""
    found: list[list[str]] = []
    for kind, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if kind == "python":
            found.append([sys.executable, "-c", text])
        else:
            lines = [line for line in text.splitlines() if line.startswith("$ ")]
            found += [["bash", "-o", "pipefail", "-c", line.removeprefix("$ ")] for line in lines]
    return found


def test_the_guide_does_what_it_says(tmp_path: Path) -> None:
    commands = Path(sys.executable).parent
    with Broker() as broker:
        env = os.environ | {
            "MILLSTREAM_BROKERS": broker.bootstrap,
            "PATH": f"{commands}:{os.environ['PATH']}",
        }
        said: dict[str, str] = {}
        for step in steps():
            done = subprocess.run(
                step, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WITHIN_S
            )
            assert done.returncode == 0, f"{step}: {done.stderr}"
            said[step[-1]] = said.get(step[-1], "") + done.stdout
    first = said["millstream consume orders --group billing --from earliest --until latest"]
    again = said["millstream consume orders --group billing --until latest"]
    assert sorted(first.splitlines()) == ["1 cake", "1 pot", "1 tea", "2 cups"]
    assert sorted(again.splitlines()) == sorted(first.splitlines()), "once, after the reset"
    assert len(said["millstream consume orders --from '1h ago' --until latest"].splitlines()) == 4
