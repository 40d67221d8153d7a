"""An application in processes of its own, which meet planned accidents, and is run again.

Which accidents there are is in accidents/sitecustomize.py.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.thread_dumps import ask_for_threads
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
RUN_SECONDS_MAX = 500.0
KILLED = -signal.SIGKILL


class KilledApplication:
    """`python -m <module> <data> ...`; what its last run has said is in `said`."""

    def __init__(
        self, module: str, directory: Path, *, brokers: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._module, self._brokers, self._env = module, brokers, env or {}
        self.data, self.said = directory / "data", directory / "said.txt"
        self.accidents = directory / "accidents"
        self.accidents.mkdir()

    def plan(self, victim: str, *points: str) -> None:
        for point in points:
            (self.accidents / f"{point}@{victim}").touch()

    def open_accidents(self) -> list[str]:
        return sorted(file.name for file in self.accidents.glob("*@*") if file.suffix != ".taken")

    def run(self, *arguments: str, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Run it to its end; the exit code."""
        with self.started(*arguments) as application:

            def has_ended() -> bool:
                meanwhile()
                return application.poll() is not None

            try:
                eventually(
                    has_ended,
                    what=f"an end, with {self.open_accidents()} to come",
                    within_s=RUN_SECONDS_MAX,
                )
            except AssertionError:
                ask_for_threads(application.pid)
                print(self.said.read_text())
                raise
            return application.wait()

    def require_killed(self, *arguments: str) -> None:
        assert self.run(*arguments) == KILLED, self.said.read_text()
        assert self.open_accidents() == []

    def require_success(
        self, *arguments: str, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        assert self.run(*arguments, meanwhile=meanwhile) == 0, self.said.read_text()
        assert self.open_accidents() == []

    def run_through(self, *arguments: str) -> None:
        """Run it, again whenever it was killed, until it is done."""
        end = KILLED
        while end == KILLED:
            end = self.run(*arguments)
        assert end == 0, self.said.read_text()
        assert self.open_accidents() == []

    @contextlib.contextmanager
    def started(
        self, *arguments: str, said: Path | None = None
    ) -> "Iterator[subprocess.Popen[bytes]]":
        """In a session of its own; nothing of it is left at the end."""
        with (said or self.said).open("w") as output:
            application = subprocess.Popen(
                [sys.executable, "-m", self._module, str(self.data), *arguments],
                env=os.environ | self._environment(),
                stderr=output,
                start_new_session=True,
            )
        try:
            yield application
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(application.pid, signal.SIGKILL)
            application.wait()

    def _environment(self) -> dict[str, str]:
        return {
            "MILLSTREAM_BROKERS": self._brokers,
            "MILLSTREAM_SPARK": "local[2]",
            "MILLSTREAM_SPARK_QUICK_START": "true",
            "MILLSTREAM_ACCIDENTS": str(self.accidents),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "accidents"), str(ROOT)]),
            **self._env,
        }
