"""`millstream certs`: certificates for a first try, of an authority of one's own."""

import datetime
from pathlib import Path
from typing import Annotated

import typer

from millstream.commands.options import BadUsage
from millstream.commands.output import say


def certs(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where to write them; made if missing.")
    ],
    host: Annotated[
        list[str],
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or address by which clients connect to the broker. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    client: Annotated[
        list[str],
        typer.Option("--client", metavar="NAME", help="Also one for this client. Repeatable."),
    ] = [],  # noqa: B006 - the same
) -> None:
    """Make certificates for a first try with TLS.

    An authority (ca.pem), and certificates for a broker (server.pem) and clients. For tests and a
    first try: the authority's key has no password. Nothing is overwritten; with an authority that
    is there already, more certificates are made of it.

    Example: millstream certs ./certs --host broker.example.org --client ada
    """
    from millstream.broker.security.certificates import write_test_certificates

    if not host and not client:
        raise BadUsage("name at least one --host of the broker, or a --client")
    now = datetime.datetime.now(datetime.UTC)
    for path in write_test_certificates(directory, hosts=host, clients=client, now=now):
        typer.echo(path)
    say("Clients trust ca.pem. Keep the .key files secret, ca.key above all")
