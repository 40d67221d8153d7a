"""`millstream serve`: an application over HTTP. Runs no jobs: `millstream run` does."""

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.base.errors import Rejected
from millstream.commands.output import say
from millstream.passwords import read_password
from millstream.settings import WebSettings, load

if TYPE_CHECKING:
    from millstream.app import App
    from millstream.web.guard import Admission
    from millstream.web.limits import Limits
    from millstream.web.server import Listening

NEEDED = ("starlette", "uvicorn", "pyarrow")


class WebNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"`millstream serve` needs {missing}, which is not installed: "
            "pip install 'millstream[web]'"
        )
        self.missing = missing


def serve(
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
            "--listen", metavar="HOST:PORT", help="Where to listen.  [default: 127.0.0.1:8080]"
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The file whose first line is the token that clients must send. Beyond loopback "
            "there must be one.",
        ),
    ] = None,
) -> None:
    """Serve an application over HTTP until Ctrl-C.

    Rows can be published, views read, their changes listened to: docs/guides/http_api.md. Its
    limits are settings: docs/settings.md.
    """
    settings = load(WebSettings, options={"listen": listen, "token_file": token_file})
    _require_installed()
    token = None if settings.token_file is None else read_password(settings.token_file)
    listening = _listening(settings, token)
    from millstream.commands.app_file import load_app

    app = load_app(file)
    try:
        _serve(app, listening, _admission(settings, token), _limits(settings))
    finally:
        app.close()
    say("millstream serve stopped")


def _require_installed() -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise WebNotInstalled(missing=name)


def _serve(app: "App", listening: "Listening", admission: "Admission", limits: "Limits") -> None:
    from millstream.commands.served_app import ServedApp
    from millstream.web.server import run_server
    from millstream.web.service import make_service

    served = ServedApp(app, limits)
    try:
        run_server(
            lambda: make_service(served, limits=limits, admission=admission),
            listening,
            when_ready=lambda url: print(f"millstream serves {app.name} on {url}", flush=True),
        )
    finally:
        served.close()


def _listening(settings: WebSettings, token: str | None) -> "Listening":
    from millstream.web.listening import TlsFiles, check_listening
    from millstream.web.server import Listening

    certificate, key = settings.tls_certificate, settings.tls_key
    tls = TlsFiles(certificate=certificate, key=key) if certificate and key else None
    host, port = settings.listen.host, settings.listen.port
    check_listening(host, port, token=token, tls=tls, plain_http=settings.plain_http)
    return Listening(host=host, port=port, tls=tls)


def _admission(settings: WebSettings, token: str | None) -> "Admission":
    """By which names it may be called matters where no token tells clients from pages."""
    from millstream.web.guard import Admission, loopback_hosts
    from millstream.web.listening import is_loopback

    host = settings.listen.host
    own = f"[{host}]" if ":" in host else host
    hosts = loopback_hosts([own, *settings.hosts]) if is_loopback(host) else None
    return Admission(token=token, hosts=hosts, requests_max=settings.requests_max)


def _limits(settings: WebSettings) -> "Limits":
    from millstream.web.limits import Limits

    return Limits(
        body_bytes_max=settings.body_bytes_max,
        body_ms_max=settings.body_ms_max,
        rows_max=settings.rows_max,
        limit_max=settings.limit_max,
        timeout_ms_max=settings.timeout_ms_max,
        threads_max=settings.threads_max,
        waits_max=settings.waits_max,
        feeds_max=settings.feeds_max,
        heartbeat_ms=settings.heartbeat_ms,
        idempotency_ms=settings.idempotency_ms,
        idempotency_bytes_max=settings.idempotency_bytes_max,
    )
