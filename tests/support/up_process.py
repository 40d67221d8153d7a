"""`millstream up` as a process of its own: its lines of JSON, and what it says otherwise."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import eventually

WITHIN_S = 180.0


class UpProcess:
    """Runs until it is stopped, or killed, on free ports of loopback."""

    def __init__(
        self, file: Path, *options: str, env: Mapping[str, str] | None = None, wait: bool = True
    ) -> None:
        given = {"MILLSTREAM_SPARK": "local[2]", "MILLSTREAM_SPARK_QUICK_START": "true"}
        words = ["--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0", "--json", *options]
        self._said = file.with_suffix(".said")
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millstream", "up", str(file), *words],
                cwd=file.parent,
                env=os.environ | given | dict(env or {}),
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            eventually(lambda: bool(self.url), what=f"HTTP: {self.said}", within_s=WITHIN_S)

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        return str(self._last("console", "url") or "")

    @property
    def broker(self) -> str:
        return str(self._last("broker", "address") or "")

    @property
    def broker_pid(self) -> int:
        return int(self._last("broker", "pid") or 0)

    def state_of(self, job: str) -> str:
        found = [line["state"] for line in list(self.lines) if line.get("job") == job]
        return str(found[-1]) if found else ""

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for it; the exit code."""
        code = self.process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        return code

    def _last(self, what: str, fact: str) -> Any:
        found = [line[fact] for line in list(self.lines) if line.get("up") == what and fact in line]
        return found[-1] if found else None

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.lines.append(json.loads(line))
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.end()
