"""What `millstream serve` and `millstream up` serve over HTTP, and on which terms."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.base.errors import Rejected
from millstream.passwords import read_password
from millstream.settings import WebSettings, load

if TYPE_CHECKING:
    from millstream.app import App
    from millstream.web.guard import Admission
    from millstream.web.limits import Limits
    from millstream.web.server import Listening
    from millstream.web.service import Service

NEEDED = ("starlette", "uvicorn", "pyarrow", "jinja2")


class WebNotInstalled(Rejected):
    def __init__(self, *, command: str, missing: str) -> None:
        super().__init__(
            f"`millstream {command}` needs {missing}, which is not installed: "
            "pip install 'millstream[web]'"
        )
        self.command, self.missing = command, missing


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTerms:
    """Where to listen, whom to let in, and how much of everything."""

    listening: "Listening"
    admission: "Admission"
    limits: "Limits"


def http_terms(command: str, *, listen: str | None, token_file: str | None) -> HttpTerms:
    """From options, environment and file; refuses what would be unsafe."""
    settings = load(WebSettings, options={"listen": listen, "token_file": token_file})
    require_web(command)
    token = None if settings.token_file is None else read_password(settings.token_file)
    return HttpTerms(
        listening=_listening(settings, token),
        admission=_admission(settings, token),
        limits=_limits(settings),
    )


@contextlib.contextmanager
def served(app: "App", terms: HttpTerms) -> "Iterator[Callable[[], Service]]":
    """Yields what makes the service of an application; what it opens is closed at the end."""
    from millstream.commands.console.shown_app import ShownApp
    from millstream.commands.served_app import ServedApp
    from millstream.web.service import make_service

    application, console = ServedApp(app, terms.limits), ShownApp(app)
    try:
        yield lambda: make_service(
            application,
            limits=terms.limits,
            admission=terms.admission,
            console=console,
            folders=private_folders(app),
        )
    finally:
        console.close()
        application.close()


def private_folders(app: "App") -> tuple[str, ...]:
    """Whose names no client sees: those of the application, as errors may write them, and the one
    that it runs in."""
    given = [str(app.data), *app.views.folders(), *app.forgetting.folders(), str(Path.cwd())]
    names = (name for one in given for name in (one, str(Path(one)), str(Path(one).absolute())))
    return tuple(dict.fromkeys(names))


def require_web(command: str) -> None:
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise WebNotInstalled(command=command, missing=name)


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
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        head_ms_max=settings.head_ms_max,
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
