"""`millstream up`: all of one application in one command; broker, captures, jobs, views and HTTP.

HTTP comes first and goes last: it is there before Spark is, and when a job has failed. Joins what
`run` and `serve` do; does neither itself.
"""

import contextlib
import errno
import importlib.util
import json as json_format
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import MillstreamError, Rejected
from millstream.commands.http_terms import HttpTerms, http_terms, served
from millstream.commands.job_lines import Look, shown_jobs
from millstream.commands.options import BadOption, Json, MetricsListen, OnlyJobs, RebuildJobs
from millstream.commands.output import counted, say, terminate_as_interrupt
from millstream.commands.run import metrics_served
from millstream.setting_kinds import parse_address
from millstream.settings import ClientSettings, is_given

if TYPE_CHECKING:
    from millstream.app import App

BROKER_ADDRESS = "127.0.0.1:9092"


def up(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The Python file that makes the App; FILE:NAME if it makes several.",
        ),
    ],
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where HTTP and the console listen.  [default: 127.0.0.1:8080]",
        ),
    ] = None,
    broker_listen: Annotated[
        str,
        typer.Option(
            "--broker-listen",
            metavar="HOST:PORT",
            help="Where the broker listens. None is started where MILLSTREAM_BROKERS names one.",
        ),
    ] = BROKER_ADDRESS,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The file whose first line is the token that HTTP clients must send. Beyond "
            "loopback there must be one.",
        ),
    ] = None,
    only: OnlyJobs = None,
    rebuild: RebuildJobs = None,
    metrics_listen: MetricsListen = None,
    json: Json = False,
) -> None:
    """Start all of an application, until Ctrl-C.

    Broker, captures, jobs, views, commands, HTTP and the console. The next start goes on where this
    one stopped. What dies comes back: the broker, a capture, a job whose failure may pass. Where a
    job has failed for good, the rest goes on, HTTP too, and the command ends with 1 after Ctrl-C.

    Example: millstream up shop.py --listen 127.0.0.1:8000
    """
    terms = http_terms("up", listen=listen, token_file=token_file)
    from millstream.app import broker_address
    from millstream.commands.app_file import load_app

    address = _host_and_port(broker_listen)
    given = broker_address.set(address)
    try:
        app = load_app(file)
    finally:
        broker_address.reset(given)
    if app.catalog.jobs:
        require_spark()
    try:
        with contextlib.suppress(KeyboardInterrupt), terminate_as_interrupt():
            _Up(app, terms, broker_address=address, as_json=json).run(
                only=only, rebuild=rebuild or [], metrics_listen=metrics_listen
            )
    finally:
        app.close()
        say("millstream up stopped")


def _host_and_port(text: str) -> tuple[str, int]:
    try:
        address = parse_address(text)
    except ValueError:
        allowed = "host:port, port 0 for any free one"
        raise BadOption(option="--broker-listen", value=text, allowed=allowed) from None
    return address.host, address.port


def require_spark() -> None:
    """Before anything is started: what jobs would miss, in one line."""
    from millstream.jobs import SparkNotInstalled
    from millstream.processing.java import find_java

    for name in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise SparkNotInstalled(missing=name)
    find_java()


class BrokerPortTaken(Rejected):
    def __init__(self, *, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is in use by another process; stop that one, or let the broker listen "
            f"elsewhere (--broker-listen {host}:0 takes any free port), or, if it is a broker, use "
            f"it: MILLSTREAM_BROKERS={host}:{port}"
        )
        self.host, self.port = host, port


def require_free(host: str, port: int) -> None:
    """Whether the broker could listen there: it would say so too, but not what to do in `up`."""
    family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BrokerPortTaken(host=host, port=port) from None
        raise


class _Up:
    """One run: what is told of it, and what waits for what."""

    def __init__(
        self, app: "App", terms: HttpTerms, *, broker_address: tuple[str, int], as_json: bool
    ) -> None:
        self._app, self._terms, self._as_json = app, terms, as_json
        self._broker_address = broker_address
        self._capture_pids: dict[str, int] = {}

    def run(
        self, *, only: list[str] | None, rebuild: list[str], metrics_listen: str | None
    ) -> None:
        """Until Ctrl-C; raises what failed meanwhile."""
        failure: MillstreamError | None = None
        with (
            self._broker(),
            self._http(),
            metrics_served(self._app, metrics_listen),
            contextlib.suppress(KeyboardInterrupt),
        ):
            try:
                self._work(only=only, rebuild=rebuild)
            except MillstreamError as error:
                failure = error
                if not self._app.jobs.was_stopped:
                    self._tell_failure(error)
                    threading.Event().wait()  # HTTP goes on
        if failure is not None:
            raise failure

    @contextlib.contextmanager
    def _broker(self) -> Iterator[None]:
        from millstream.commands.watched_broker import await_former, watched

        if self._app.broker is None and not is_given(ClientSettings, "brokers", options={}):
            await_former(self._app.data, tell=self._say)
            require_free(*self._broker_address)
        address = self._app.bootstrap
        broker = self._app.broker
        if broker is None:
            self._tell("broker", address, "as MILLSTREAM_BROKERS says", address=address)
        else:
            data = str(self._app.data)
            self._tell("broker", address, f"data in {data}", address=address, pid=broker.pid)
        with watched(broker, tell=self._tell_broker):
            yield

    @contextlib.contextmanager
    def _http(self) -> Iterator[None]:
        from millstream.web.server import server_beside

        with (
            served(self._app, self._terms) as make_service,
            server_beside(make_service, self._terms.listening) as url,
        ):
            self._tell("console", url, "and the HTTP API: docs/guides/http_api.md", url=url)
            yield

    def _work(self, *, only: list[str] | None, rebuild: list[str]) -> None:
        app = self._app
        app.jobs.make_topics(only, rebuild=rebuild)
        for capture in app.captures.declared.values():
            self._tell("capture", capture.name, ", ".join(capture.names), name=capture.name)
        with (
            app.captures.running(),
            app.hosted_unless(once=False),
            shown_jobs(as_json=self._as_json, log=app.jobs.logs.jobs) as look,
        ):
            if app.catalog.jobs:
                jobs = counted(len(only or app.catalog.jobs), "job")
                self._say(f"{jobs}: Spark takes some seconds to start; Ctrl-C ends all")
                app.jobs.run(
                    only=only,
                    rebuild=rebuild,
                    look=self._looking(look),
                    stays=True,
                )
            elif app.captures.declared:
                app.captures.wait()
            else:
                threading.Event().wait()

    def _looking(self, look: Look) -> Look:
        """The jobs' progress, and in JSON which process each capture has now."""

        def looked(jobs: Any) -> None:
            found = self._app.captures.pids
            for name, pid in found.items():
                if self._as_json and self._capture_pids.get(name) != pid:
                    self._tell("capture", name, "", name=name, pid=pid)
            self._capture_pids = found
            look(jobs)

        return looked

    def _tell_broker(self, told: str) -> None:
        self._say(told)
        broker = self._app.broker
        if self._as_json and broker is not None and broker.is_running:
            self._tell("broker", broker.bootstrap, "", address=broker.bootstrap, pid=broker.pid)

    def _tell_failure(self, error: MillstreamError) -> None:
        self._say(f"{str(error).rstrip('.')}. The rest goes on; Ctrl-C ends it")

    def _say(self, told: str) -> None:
        say(f"millstream: {told}")

    def _tell(self, what: str, where: str, more: str, **facts: Any) -> None:
        if self._as_json:
            print(json_format.dumps({"up": what, **facts}), flush=True)
        else:
            print(f"{what:<8} {where:<24} {more}".rstrip(), flush=True)
