"""`millstream serve`: an application over HTTP. Runs no jobs: `millstream run` does."""

from typing import Annotated

import typer

from millstream.commands.http_terms import http_terms, served
from millstream.commands.output import say


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
    limits are settings: docs/settings.md. People find the console at the same address:
    docs/guides/console.md.

    Example: millstream serve shop.py --listen 127.0.0.1:8000
    """
    terms = http_terms("serve", listen=listen, token_file=token_file)
    from millstream.commands.app_file import load_app
    from millstream.web.server import run_server

    app = load_app(file)
    try:
        with served(app, terms) as make_service:
            run_server(
                make_service,
                terms.listening,
                when_ready=lambda url: print(f"millstream serves {app.name} on {url}", flush=True),
            )
    finally:
        app.close()
    say("millstream serve stopped")
