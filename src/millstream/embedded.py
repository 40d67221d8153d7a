"""`Broker`: a real broker in a process of its own, for an application, a notebook or a test.

It never shares the caller's interpreter lock, and it stops when the caller does, even if that
one is killed: the child reads a pipe from its parent and stops when the pipe ends.
"""

import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from millstream.base.diagnostics import say_line, set_up_diagnostics
from millstream.base.errors import MillstreamError, Rejected

CHILD = "import sys; from millstream.embedded import main; sys.exit(main())"
STOP_SECONDS_MAX = 30.0


class BrokerDidNotStart(Rejected):
    def __init__(self, *, reason: str) -> None:
        super().__init__(f"the broker did not start: {reason}")
        self.reason = reason


class BrokerMisused(Rejected):
    """`Broker` was called in a way that cannot work."""


class Broker:
    """A running broker; use it as a context manager, or call `start` and `stop`.

    Without `data_dir` it keeps its data in a temporary directory that goes with it. Further
    settings are those of docs/settings.md, as Python names:
    `Broker(durability="relaxed", default_partitions=4)`.
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        **settings: str | int | bool | Path,
    ) -> None:
        if {"data", "listen"} & set(settings):
            raise BrokerMisused("Broker takes data_dir=, host= and port= for `data` and `listen`")
        self._given_dir = None if data_dir is None else Path(data_dir)
        self.data_dir = self._given_dir
        self._host = host
        self._port = port
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._bootstrap = ""
        self._metrics_url: str | None = None

    @property
    def bootstrap(self) -> str:
        """The address for a client's `bootstrap.servers`."""
        if self._process is None:
            raise BrokerMisused(
                "the broker is not running: use it in a `with` block, or start() it"
            )
        return self._bootstrap

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds the metrics, if `metrics_listen` was given."""
        if self._process is None or self._metrics_url is None:
            raise BrokerMisused(
                'the broker serves no metrics: start it with Broker(metrics_listen="127.0.0.1:0")'
            )
        return self._metrics_url

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() it first"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __repr__(self) -> str:
        where = f"{self._bootstrap}, process {self.pid}" if self.is_running else "not running"
        return f"<Broker {where}, data in {self.data_dir or 'a temporary directory'}>"

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> "Broker":
        """Start, and return when clients can connect. After a stop or a kill it starts again.

        After a crash it first checks the end of each partition; with a lot of data in small
        batches that can take a minute.
        """
        if self.is_running:
            raise BrokerMisused(f"the broker runs already, in process {self.pid}")
        self._make_data_dir()
        settings = {"log_level": "warning", **self._settings}
        settings |= {"data": str(self.data_dir), "listen": f"{self._host}:{self._port}"}
        # The child must not get our signals (Ctrl-C at a terminal): it stops when we do.
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(settings, default=str), self._temporary_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._await_ready(self._process)
        return self

    def add_user(self, user: str, password: str) -> None:
        """Let somebody log in (`sasl=`). While the broker is stopped: a running one is asked by
        any Kafka client, or by `millstream users`."""
        if self.is_running:
            raise BrokerMisused("add_user is for a broker that is stopped; see `millstream users`")
        command = ["users", "add", user, "--data", str(self._make_data_dir())]
        # The password goes through a pipe: the words of a command can be seen by everybody.
        done = subprocess.run(
            [sys.executable, "-m", "millstream", *command, "--password-file", "-"],
            input=f"{password}\n",
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise BrokerMisused(f"{user} was not added: {done.stderr.strip()}")

    def _make_data_dir(self) -> Path:
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="millstream-"))
        return self.data_dir

    def _await_ready(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        # However long it takes: after a crash it may have gigabytes to check, and says so on
        # stderr. If it ends, the line is empty.
        line = process.stdout.readline()
        report = json.loads(line) if line else {}
        if "port" not in report:
            self._end(process, signal.SIGKILL)
            self._remove_temporary()
            reason = report.get("error") or f"it ended with exit code {process.returncode}"
            raise BrokerDidNotStart(reason=reason)
        # A restart must listen where clients look for it.
        self._port = int(report["port"])
        self._bootstrap = f"{self._host}:{self._port}"
        self._metrics_url = report["metrics_url"]

    def stop(self) -> None:
        """Stop cleanly: everything is on disk, the next start needs no recovery."""
        if self._process is not None:
            self._end(self._process, signal.SIGTERM)
            self._process = None
        self._remove_temporary()

    def kill(self) -> None:
        """End the process at once, as a crash would (kill -9). The data stays: `start` recovers."""
        if self._process is not None:
            self._end(self._process, signal.SIGKILL)
            self._process = None

    def _end(self, process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def _temporary_dir(self) -> str:
        """The directory that goes with the broker, if it is ours to remove."""
        return str(self.data_dir) if self._given_dir is None and self.data_dir else ""

    def _remove_temporary(self) -> None:
        if self._temporary_dir:
            shutil.rmtree(self._temporary_dir, ignore_errors=True)
            self.data_dir = None


def main() -> int:
    """The child: run a broker until standard input ends; reports in one JSON line.

    If the parent ended without a stop, its temporary directory is removed here.
    """
    started = time.perf_counter()
    from millstream.broker.server import BrokerServer
    from millstream.running import run_broker
    from millstream.settings import BrokerSettings, LogSettings, load, unknown_variables

    def report(**facts: object) -> None:
        print(json.dumps(facts), flush=True)

    def when_ready(server: BrokerServer) -> None:
        report(
            port=server.port,
            metrics_url=server.metrics_url,
            ready_seconds=round(time.perf_counter() - started, 3),
        )

    set_up_diagnostics(load(LogSettings).format)
    for line in unknown_variables(os.environ):
        say_line(f"millstream: {line}", level=logging.WARNING)
    try:
        options = {name: _text(value) for name, value in json.loads(sys.argv[1]).items()}
        settings = load(BrokerSettings, options=options)
        exit_code = run_broker(settings, when_ready=when_ready, until_closed=sys.stdin)
        if sys.argv[2] and select.select([sys.stdin], [], [], 0)[0]:
            shutil.rmtree(sys.argv[2], ignore_errors=True)
        return exit_code
    except MillstreamError as error:
        report(error=str(error))
        return 1


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
