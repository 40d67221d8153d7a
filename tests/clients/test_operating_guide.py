"""docs/guides/operating.md: its brokers start, stop, are killed and copied as it says."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import millstream.broker.metrics.families  # noqa: F401  # fills the table of families
from millstream.broker.metrics.family import FAMILIES
from tests.support.apache_kafka import free_ports
from tests.support.readable import is_readable

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"
JOB_METRICS = GUIDE.parents[1] / "job_metrics.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
WITHIN_S = 60.0
ENDINGS = {"^C": signal.SIGINT, "kill -9": signal.SIGKILL}


class Terminals:
    """One for the broker, which runs until the guide ends it, and one for the other commands."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder, self.env = folder, env
        self.broker: subprocess.Popen[str] | None = None

    def run(self, line: str) -> list[str]:
        """What a command prints; nothing for the broker, which goes on."""
        if line in ENDINGS:
            return self._end(ENDINGS[line])
        if line.startswith("$ millstream broker"):
            return self._start(line.removeprefix("$ "))
        if not line.startswith("$ "):
            return []  # what a command says
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.removeprefix("$ ")],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout.splitlines()

    def _start(self, command: str) -> list[str]:
        self.broker = subprocess.Popen(
            command.split(),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.broker.stdout is not None
        assert is_readable(self.broker.stdout, WITHIN_S), "it does not start"
        assert " ready on " in self.broker.stdout.readline()
        return []

    def _end(self, how: signal.Signals) -> list[str]:
        assert self.broker is not None
        self.broker.send_signal(how)
        code = self.broker.wait(WITHIN_S)
        assert code == (0 if how == signal.SIGINT else -how)
        self.close()
        return []

    def close(self) -> None:
        if self.broker is not None:
            self.broker.kill()
            self.broker.communicate()
        self.broker = None


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    (port,) = free_ports(1)
    opened = Terminals(
        tmp_path,
        os.environ
        | {
            "MILLSTREAM_BROKERS": f"127.0.0.1:{port}",
            "MILLSTREAM_BROKER_LISTEN": f"127.0.0.1:{port}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    yield opened
    opened.close()


def test_a_copy_has_what_was_there_and_a_crash_loses_nothing(terminals: Terminals) -> None:
    printed = [
        said
        for block in BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if (said := terminals.run(line))
    ]
    assert printed == [["1 tea"], ["1 tea", "1 pot", "2 cups"]]


def test_every_metric_that_is_to_be_watched_is_there() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(millstream_[a-z_]+)`", text))
    known = {family.name for family in FAMILIES}
    known |= set(re.findall(r"`(millstream_job_[a-z_]+)`", JOB_METRICS.read_text(encoding="utf-8")))
    assert named
    assert named <= known
