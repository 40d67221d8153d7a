"""The two sides: a capture of Millstream's and one of Debezium's, each in processes of its own.

Both are what a user starts: `millstream capture run`, and Kafka Connect with one connector. They
write to topics that are made beforehand, alike. Does not measure: see bench/capture.py.
"""

import os
import subprocess
import sys
import tempfile
import time
from typing import Literal, Protocol

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewTopic,
)

from bench.capture_databases import TABLES, Database
from bench.capture_reading import NotCapturedError, committed_end
from bench.debezium import Connect

Side = Literal["ours", "debezium"]
SIDES: tuple[Side, ...] = ("ours", "debezium")
ADMIN_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 120.0
STOP_WITHIN_S = 60.0
FOLLOWS_WITHIN_S = 300.0


class Capture(Protocol):
    """`prepare` settles from where on changes are captured; `start` lets them come."""

    def prepare(self) -> None: ...

    def start(self) -> None: ...

    def require_alive(self) -> None: ...

    @property
    def pid(self) -> int: ...

    def topic_of(self, table: str) -> str: ...

    def close(self) -> None: ...


class MillstreamCapture:
    def __init__(
        self,
        name: str,
        database: Database,
        *,
        bootstrap: str,
        has_load: bool,
        has_boundaries: bool,
    ) -> None:
        self._name, self._database = name, database
        self._bootstrap, self._has_load = bootstrap, has_load
        self._has_boundaries = has_boundaries
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the capture

    def prepare(self) -> None:
        make_topics(self._bootstrap, [self.topic_of(table) for table in TABLES])
        tables = [word for table in TABLES for word in ("--table", table)]
        load = "--load" if self._has_load else "--no-load"
        boundaries = "--boundaries" if self._has_boundaries else "--no-boundaries"
        self._checked("add", self._name, self._database.url, *tables, load, boundaries)
        if not self._has_load:
            self._checked("run", self._name, "--once")

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command("run", self._name),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=self._environment,
        )

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def require_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._output.seek(0)
            raise RuntimeError(f"capture {self._name} has ended:\n{self._output.read().decode()}")

    def topic_of(self, table: str) -> str:
        return f"{self._name}.{table}"

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_WITHIN_S)
        self._output.close()

    def _checked(self, *words: str) -> None:
        done = subprocess.run(
            self._command(*words),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"millstream capture {words}:\n{done.stdout}\n{done.stderr}")

    def _command(self, *words: str) -> list[str]:
        command = [sys.executable, "-m", "millstream", "capture", *words]
        return [*command, "--brokers", self._bootstrap]

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"BENCH_PASSWORD": self._database.password}


class DebeziumCapture:
    def __init__(
        self,
        name: str,
        database: Database,
        *,
        bootstrap: str,
        has_load: bool,
        is_tuned: bool,
        has_boundaries: bool,
    ) -> None:
        self._name, self._database = name, database
        self._bootstrap, self._has_load = bootstrap, has_load
        self._connect = Connect(
            name,
            database.jars,
            bootstrap=bootstrap,
            connector={
                **database.connector(name, has_load=has_load),
                "provide.transaction.metadata": str(has_boundaries).lower(),
            },
            is_tuned=is_tuned,
        )

    def prepare(self) -> None:
        make_topics(self._bootstrap, [self.topic_of(table) for table in TABLES])
        if self._database.has_slots:
            self._database.make_slot(self._name)
        elif not self._has_load:
            self._run_until_it_follows()

    def start(self) -> None:
        self._connect.start()

    def _run_until_it_follows(self) -> None:
        """Its place is in its file of offsets once it has written a change, and was stopped."""
        self._connect.start()
        until = time.monotonic() + FOLLOWS_WITHIN_S
        while committed_end(self._bootstrap, self.topic_of("marks")) == 0:
            if time.monotonic() > until:
                raise NotCapturedError(f"{self._name} follows no changes")
            self.require_alive()
            self._database.mark()
            time.sleep(1.0)
        self._connect.stop()

    @property
    def pid(self) -> int:
        return self._connect.pid

    def require_alive(self) -> None:
        self._connect.require_alive()

    def topic_of(self, table: str) -> str:
        return self._database.topic_of(self._name, table)

    def close(self) -> None:
        self._connect.close()


def make_topics(bootstrap: str, names: list[str]) -> None:
    """As our captures make them: compacted, one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    new = [NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}) for name in names]
    for made in admin.create_topics(new).values():
        made.result(ADMIN_TIMEOUT_S)


def delete_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for gone in admin.delete_topics(names).values():
        gone.result(ADMIN_TIMEOUT_S)
