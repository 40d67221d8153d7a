"""A MySQL server on loopback: the system's, or one that was unpacked elsewhere.

MILLSTREAM_MYSQL_ROOT names a directory with `usr/sbin/mysqld` and every library of it, as
`dpkg-deb -x` of Debian's packages leaves it: its own C library is used then. Debian stable and
PyPI have no MySQL, so on most machines there is none.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from tests.support.mariadb_server import DATABASE, PASSWORD, USER, MariadbServer
from tests.support.postgres_server import _as_owner, _owner

LIBRARIES = "usr/lib/x86_64-linux-gnu"
CAPTURED = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-row-metadata": "FULL",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-buffer-pool-size": "64M",
    "performance-schema": "OFF",
}


class NoMysqlServerError(RuntimeError):
    """No server here, or one that may not run on a directory of its own."""


class MysqlServer(MariadbServer):
    @property
    def url(self) -> str:
        return super().url.replace("mariadb://", "mysql://")

    def create(self) -> None:
        script = self.directory / "init.sql"
        script.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        os.chown(script, *_owner())
        self.settings["init-file"] = str(script)
        command = [*self._command(), "--initialize-insecure"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **_as_owner())
        if done.returncode != 0:
            raise NoMysqlServerError(f"mysqld --initialize: {done.stderr[-500:]}")

    def _command(self) -> list[str]:
        return [
            *_program(self._installed),
            "--no-defaults",
            f"--basedir={self._installed / 'usr'}",
            f"--datadir={self.directory / 'data'}",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--lc-messages-dir={self._installed / 'usr/share/mysql'}",
            "--secure-file-priv=",
            "--mysqlx=OFF",
        ]

    def _surroundings(self) -> dict[str, Any]:
        return _as_owner()

    def _root(self) -> Path:
        return installed_root()


def _program(root: Path) -> list[str]:
    server = str(root / "usr/sbin/mysqld")
    if root == Path("/"):
        return [server]
    libraries = root / LIBRARIES
    loader = str(libraries / "ld-linux-x86-64.so.2")
    private = root / "usr/lib/mysql/private"
    return [loader, "--library-path", f"{libraries}:{private}", server]


@contextmanager
def mysql_server() -> Iterator[MysqlServer]:
    installed_root()
    directory = Path(tempfile.mkdtemp(prefix="millstream-mysql-"))
    os.chown(directory, *_owner())
    server = MysqlServer(directory, CAPTURED)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.crash()
        rmtree(directory)


def installed_root() -> Path:
    """The directory below which `usr/sbin/mysqld` is. MariaDB has a link of that name."""
    root = Path(os.environ.get("MILLSTREAM_MYSQL_ROOT", "/"))
    server = root / "usr/sbin/mysqld"
    if not server.exists() or "mariadb" in server.resolve().name:
        raise NoMysqlServerError("no MySQL server: Debian has none, MILLSTREAM_MYSQL_ROOT may")
    return root
