"""A MariaDB server on loopback: the system's, or Debian's packages unpacked into `.cache/`.

Nothing is installed: `apt-get download` and `dpkg-deb -x` need no rights. It can be stopped, killed
and started again on the same port, with its data. As root it runs as `nobody`.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql

from millstream.base.listening_ports import free_port
from tests.support.maven_jars import APT_TIMEOUT_S, CACHE
from tests.support.postgres_server import _as_owner, _owner
from tests.support.waiting import eventually

READY_WITHIN_S = 90.0
STOPPED_WITHIN_S = 60.0
USER, PASSWORD, DATABASE = "mill", "stream", "shop"
PACKAGE = "mariadb-server-core"
# What a capture needs, and no syncs: the tests kill the server, not the machine.
CAPTURED: Mapping[str, str] = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "OFF",
}
SYSTEM_SCRIPTS = ("mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data")


class NoMariadbServerError(RuntimeError):
    """No server here and none to be had; the message says what was tried."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"no mariadbd, and Debian's {PACKAGE} cannot be had: {why}")


class MariadbServer:
    """One data directory and its server, which logs into `directory`."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory, self.settings = directory, dict(settings)
        self.port = free_port()
        self._installed = self._root()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mariadb://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def connect(self, **options: Any) -> "pymysql.Connection[Any]":
        """As the owner of the database, with every privilege; each statement is committed."""
        given = {"autocommit": True, "charset": "utf8mb4", "database": DATABASE, **options}
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, **given
        )

    def create(self) -> None:
        scripts = self._installed / "usr/share/mysql"
        parts = ["CREATE DATABASE mysql;", "USE mysql;", "SET @auth_root_socket=NULL;"]
        parts += [(scripts / f"{name}.sql").read_text() for name in SYSTEM_SCRIPTS]
        parts += ["FLUSH PRIVILEGES;", f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;"]
        parts += [f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';"]
        parts += [f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;"]
        done = subprocess.run(
            [*self._command(), "--bootstrap", "--skip-log-bin"],
            input="\n".join(parts).encode(),
            capture_output=True,
            **self._surroundings(),
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        given = [f"--{name}={value}" for name, value in self.settings.items()]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), f"--port={self.port}", "--bind-address=127.0.0.1", *given],
                stdout=log,
                stderr=log,
                **self._surroundings(),
            )
        eventually(self._answers, what="a MariaDB server", within_s=READY_WITHIN_S)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def crash(self) -> None:
        """As a crash would; what the system has in its cache stays."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOPPED_WITHIN_S)
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text()
        try:
            with closing(self.connect(connect_timeout=5)):
                return True
        except pymysql.err.OperationalError:
            return False

    def _root(self) -> Path:
        return installed_root()

    def _command(self) -> list[str]:
        share = self._installed / "usr/share/mysql"
        return [
            str(self._installed / "usr/sbin/mariadbd"),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            "--character-set-server=utf8mb4",
        ]

    def _surroundings(self) -> dict[str, Any]:
        libraries = {str(found.parent) for found in self._installed.glob("usr/lib/*/*.so*")}
        libraries |= {str(found.parent) for found in self._installed.glob("lib/*/*.so*")}
        if self._installed == Path("/"):
            return _as_owner()
        return {**_as_owner(), "env": os.environ | {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}}


@contextmanager
def mariadb_server(settings: Mapping[str, str] = CAPTURED) -> Iterator[MariadbServer]:
    directory = Path(tempfile.mkdtemp(prefix="millstream-mariadb-"))
    (directory / "data").mkdir()
    for owned in (directory, directory / "data"):
        os.chown(owned, *_owner())
    server = MariadbServer(directory, settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.crash()
        shutil.rmtree(directory)


def installed_root() -> Path:
    """The directory below which `usr/sbin/mariadbd` is."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/")
    root = CACHE / "mariadb"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "mariadb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "complete").exists():
            shutil.rmtree(root, ignore_errors=True)
            _unpack_packages(root)
            (root / "complete").touch()
    return root


def _unpack_packages(root: Path) -> None:
    root.mkdir()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoMariadbServerError(why="there is no apt-get")
    if not _needed_packages():  # a machine that never asked Debian for its lists
        _run(["apt-get", "--quiet", "update"], root)
    _run(["apt-get", "--quiet", "download", PACKAGE, *_needed_packages()], root)
    for package in root.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(root)], root)


def _needed_packages() -> list[str]:
    """The libraries that the server names; not the C library, which must be the system's."""
    command = ["apt-cache", "depends", "--important", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"^\s+\|?Depends: (lib\S+|zlib1g)$", done.stdout, re.MULTILINE)
    return [name for name in found if name not in ("libc6", "libgcc-s1", "libcrypt1")]


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=APT_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise NoMariadbServerError(why=f"{' '.join(command)}: {done.stderr.strip()}")
