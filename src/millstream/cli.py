"""The `millstream` command: joins the commands, and turns errors into one line and an exit code.

Each command is in `commands/`. Importing this must stay quick: what is heavy (librdkafka, tables,
the broker) is imported when a command runs.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from millstream._version import __version__
from millstream.base.diagnostics import is_json, set_up_diagnostics
from millstream.base.disk import Unwritable
from millstream.base.errors import Corrupt, MillstreamError, Rejected, Retryable
from millstream.commands import (
    acls,
    archive,
    broker,
    capture,
    certs,
    consume,
    demo,
    doctor,
    events,
    forgetting,
    groups,
    late,
    produce,
    queues,
    run,
    serve,
    state,
    topics,
    up,
    users,
    views,
)
from millstream.commands.connecting import BrokerUnreachable, LoginRefused, NotAllowed
from millstream.commands.options import BadUsage
from millstream.commands.output import abandon_stdout, say
from millstream.commands.plain_help import PlainCommand
from millstream.commands.positions import BadPosition
from millstream.commands.records import BadFormat, BadInput
from millstream.settings import (
    BadConfigFile,
    BadSetting,
    LogSettings,
    SettingsConflict,
    UnknownSetting,
    load,
    unknown_variables,
)

# The nearest type wins: an error's own, then its family's. Numbers from 64 are those of
# sysexits.h, which scripts know.
EXIT_CODES: Mapping[type[BaseException], int] = {
    Rejected: 1,
    BadUsage: 2,
    BadPosition: 2,
    BadFormat: 2,
    BadSetting: 2,
    SettingsConflict: 2,
    UnknownSetting: 2,
    BadConfigFile: 2,
    BadInput: 65,
    BrokerUnreachable: 69,
    Corrupt: 74,
    Unwritable: 74,
    OSError: 74,
    Retryable: 75,
    NotAllowed: 77,
    LoginRefused: 77,
    KeyboardInterrupt: 130,
}

EXIT_CODE_MEANINGS: Mapping[int, str] = {
    0: "Done. `consume` also ends so on Ctrl-C, and when its reader (`| head`) has seen enough.",
    1: "Refused: the message says why. `produce`: some records were not delivered.",
    2: "Not understood: a wrong option, argument or setting.",
    65: "A line of `produce`'s input cannot be read as a record.",
    69: "No broker answers.",
    74: "A file or disk cannot be read or written, or holds damaged data.",
    75: "No answer in time: the same command may succeed later.",
    77: "The broker's access rules do not allow it, or it refuses the login.",
    130: "Interrupted by Ctrl-C.",
}


def exit_code_of(error: BaseException) -> int:
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)


# Of options and arguments. Newer versions of typer have click's errors within themselves, older
# ones have click's own: what typer exports of them is of the right kind.
USAGE_ERROR: Any = typer.BadParameter.__base__


@contextlib.contextmanager
def usage_errors_as_json() -> Iterator[None]:
    """Where diagnostics are JSON; for people typer has more to say of them than one line."""
    try:
        yield
    except (USAGE_ERROR, typer.Abort) as error:
        if not is_json():
            raise
        if isinstance(error, typer.Abort):
            said, code = "stopped at a question", 1
        else:
            place = f"{error.ctx.command_path}: " if error.ctx else ""
            said, code = f"{place}{error.format_message()}", error.exit_code
        say(said, level=logging.ERROR)
        raise typer.Exit(code) from None


class OneLineErrors(TyperGroup):
    """What we raise on purpose, and what the disk says, ends as one line: never a traceback."""

    def make_context(self, *args: Any, **terms: Any) -> Any:
        """Reads the options before the command: what is wrong with them is a diagnostic, too."""
        with contextlib.suppress(MillstreamError):  # the callback raises it, where it is one line
            set_up_diagnostics(load(LogSettings).format)
        with usage_errors_as_json():
            return super().make_context(*args, **terms)

    def invoke(self, ctx: Any) -> Any:
        with usage_errors_as_json():
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            abandon_stdout()
            raise typer.Exit(0) from None
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            reason = (error.strerror or str(error)).lower()
            say(f"millstream: {what}{reason}", level=logging.ERROR)
            raise typer.Exit(exit_code_of(error)) from None
        except MillstreamError as error:
            said = f"millstream: {str(error).rstrip('.')}.".replace("?.", "?")
            say(said, level=logging.ERROR)
            raise typer.Exit(exit_code_of(error)) from None
        except KeyboardInterrupt as error:
            say("")
            raise typer.Exit(exit_code_of(error)) from None


app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it can be searched, and rich would cost half the start-up
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millstream {__version__}")
        raise typer.Exit


@app.callback()
def millstream(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A durable log that speaks Kafka's protocol, and the stream processing around it."""
    set_up_diagnostics(load(LogSettings).format)
    for line in unknown_variables(os.environ):
        say(f"millstream: {line}", level=logging.WARNING)


app.add_typer(demo.app, name="demo")
app.command("up", cls=PlainCommand)(up.up)
app.command("doctor", cls=PlainCommand)(doctor.doctor)
app.command("broker", cls=broker.BrokerCommand)(broker.command)
app.command("run", cls=PlainCommand)(run.run)
app.command("serve", cls=PlainCommand)(serve.serve)
topics.app.command("archive", cls=PlainCommand)(archive.archive)
topics.app.command("archived", cls=PlainCommand)(archive.archived)
topics.app.command("restore", cls=PlainCommand)(archive.restore)
app.add_typer(topics.app, name="topics")
app.command("produce", cls=PlainCommand)(produce.produce)
app.command("consume", cls=PlainCommand)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(queues.app, name="queues")
app.add_typer(late.app, name="late")
app.add_typer(state.app, name="state")
app.add_typer(views.app, name="views")
events.app.command("forget", cls=PlainCommand)(forgetting.forget)
events.app.command("consent", cls=PlainCommand)(forgetting.consent)
app.add_typer(events.app, name="events")
app.add_typer(capture.app, name="capture")
app.add_typer(users.app, name="users")
app.add_typer(acls.app, name="acls")
app.command("certs", cls=PlainCommand)(certs.certs)


def main() -> None:
    app(prog_name="millstream")
