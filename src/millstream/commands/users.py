"""`millstream users`: add, list, remove who may log in (SCRAM credentials).

Against a running broker, Millstream's or Kafka's; the very first user, whom nobody could let in, is
written into the data of a broker that does not run (`add --data`).
"""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from millstream.base.errors import Rejected
from millstream.commands.cluster import open_cluster
from millstream.commands.options import BadUsage, Brokers, Json, Yes
from millstream.commands.output import confirm, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand
from millstream.passwords import new_password

app = typer.Typer(no_args_is_help=True, help="Users: who may log in.")

UserName = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
# Read here, so that a typing error is not answered by a broker: its limits.
USER_LENGTH_MAX = 255
GENERATED_BYTES = 24


class UserNotFound(Rejected):
    def __init__(self, *, user: str) -> None:
        super().__init__(f"User {user} does not exist. `millstream users list` shows those that do")
        self.user = user


@app.command("add", cls=PlainCommand)
def add(
    user: UserName,
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The file whose first line is the password; - for standard input. Without it, "
            "you are asked.",
        ),
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Make a password, and print it.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The data directory of a broker that does not run: for the first user.",
        ),
    ] = None,
    brokers: Brokers = None,
) -> None:
    """Add a user, or give one a new password.

    Example: millstream users add ada --generate
    """
    if not 0 < len(user) <= USER_LENGTH_MAX:
        raise BadUsage(f"a user's name has 1 to {USER_LENGTH_MAX} characters")
    if generate and password_file is not None:
        raise BadUsage("--generate and --password-file exclude one another")
    if data is None:
        cluster = open_cluster(brokers)
        password = _password(user, password_file, generate)
        cluster.set_password(user, password)
    else:
        password = _password(user, password_file, generate)
        _store(data, user, password)
    if generate:
        typer.echo(password)
    say(f"{user} can log in")


def _password(user: str, file: Path | None, generate: bool) -> str:
    return secrets.token_urlsafe(GENERATED_BYTES) if generate else new_password(user, file)


def _store(data: Path, user: str, password: str) -> None:
    from millstream.broker.node import Node
    from millstream.running import change_stopped
    from millstream.settings import BrokerSettings, load

    async def add_user(node: Node) -> None:
        await node.logins.add_user(user, password)

    change_stopped(load(BrokerSettings, options={"data": str(data)}), add_user)


@app.command("list", cls=PlainCommand)
def list_users(brokers: Brokers = None, json: Json = False) -> None:
    """List the users and the mechanisms they can log in by.

    Example: millstream users list --json
    """
    users = open_cluster(brokers).users()
    if json:
        print_json([{"user": user, "mechanisms": names} for user, names in users.items()])
        return
    print_table(("USER", "MECHANISMS"), [(user, ", ".join(names)) for user, names in users.items()])


@app.command("remove", cls=PlainCommand)
def remove(user: UserName, brokers: Brokers = None, yes: Yes = False) -> None:
    """Remove a user. Connections that are logged in stay until they end or must log in again.

    Example: millstream users remove ada --yes
    """
    cluster = open_cluster(brokers)
    mechanisms = cluster.users().get(user)
    if mechanisms is None:
        raise UserNotFound(user=user)
    confirm(f"Remove user {user}?", yes=yes)
    cluster.remove_user(user, mechanisms)
    say(f"{user} cannot log in any more")
