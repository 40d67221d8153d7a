"""`millstream serve` as a process of its own, on a free port of loopback."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit

from tests.support.readable import is_readable

WITHIN_S = 60.0


class ServeProcess:
    """Runs until it is stopped, or killed; `url` is where it listens."""

    def __init__(
        self,
        file: Path,
        *,
        env: Mapping[str, str],
        options: tuple[str, ...] = (),
        files_max: int | None = None,
        stderr: Path | None = None,
    ) -> None:
        """`files_max`: a hard limit of its open files. `stderr`: where it says what is wrong, for
        what may be more than a pipe holds."""
        limited = [] if files_max is None else ["prlimit", f"--nofile={files_max}"]
        self._command = [*limited, sys.executable, "-m", "millstream", "serve", str(file)]
        self._stderr = stderr
        self._command += ["--listen", "127.0.0.1:0", *options]
        self._env, self._folder = os.environ | dict(env), file.parent
        self.url = ""
        self.start()

    def start(self) -> None:
        with contextlib.ExitStack() as opened:
            stderr: int | IO[bytes] = subprocess.PIPE
            if self._stderr is not None:
                stderr = opened.enter_context(self._stderr.open("ab"))
            self.process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        assert is_readable(self.process.stdout, WITHIN_S), "it does not start"
        line = self.process.stdout.readline()
        assert " on http" in line, f"{line}{self._said()}"
        self.url = line.rsplit(" ", 1)[1].strip()

    @property
    def address(self) -> tuple[str, int]:
        found = urlsplit(self.url)
        assert found.hostname is not None
        assert found.port is not None
        return found.hostname, found.port

    @property
    def threads(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(status.partition("Threads:")[2].split()[0])

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """As `kill` and Ctrl-C do it; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(WITHIN_S)
        for file in (self.process.stdout, self.process.stderr):
            if file is not None:
                file.close()
        return code

    def _said(self) -> str:
        self.process.kill()
        said: str | None = self.process.communicate()[1]
        return said or ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
