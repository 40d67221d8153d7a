"""`millstream broker`: run the embedded broker in the foreground.

Its options are the settings of BrokerSettings, made from them, so that none is forgotten.
"""

import inspect
from typing import Annotated, Any

import typer

from millstream.commands.output import say
from millstream.commands.plain_help import PlainCommand
from millstream.setting_kinds import Address
from millstream.settings import BrokerSettings, Setting, SettingsConflict, load, settings_of

# What to write for a unit: "64MiB" and "7d" are understood besides plain numbers.
METAVARS = {"bytes": "SIZE", "ms": "DURATION"}


def broker(**options: str | None) -> None:
    """Run a broker until Ctrl-C.

    Every option can also be set in the environment or in millstream.toml: docs/settings.md.

    Example: millstream broker --data ./data --listen 127.0.0.1:9092
    """
    settings = load(BrokerSettings, options=options)
    from millstream.broker.server import BrokerServer
    from millstream.running import run_broker

    def when_ready(server: BrokerServer) -> None:
        print(
            f"millstream broker ready on {Address(server.host, server.port)}, "
            f"data in {settings.data}, "
            f"durability {settings.durability}",
            flush=True,
        )
        if server.metrics_url is not None:
            print(f"metrics on {server.metrics_url}", flush=True)

    exit_code = run_broker(settings, when_ready=when_ready)
    say("millstream broker stopped" if exit_code == 0 else "millstream broker stopped uncleanly")
    if exit_code:
        raise typer.Exit(exit_code)


class BrokerCommand(PlainCommand):
    """Options of switches may stand alone, and none takes the next option for its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        kinds = {item.option: item.kind for item in settings_of(BrokerSettings)}
        filled = []
        for number, arg in enumerate(args):
            filled.append(arg)
            following = args[number + 1] if number + 1 < len(args) else "--"
            if arg not in kinds or not following.startswith("--"):
                continue
            if kinds[arg].is_switch:
                filled.append("true")
            elif following in kinds:
                problem = f"{arg} has no value before {following}. Give {kinds[arg].allowed}"
                raise SettingsConflict(problem)
        rest: list[str] = super().parse_args(ctx, filled)
        return rest


def _parameter(item: Setting) -> inspect.Parameter:
    metavar = METAVARS.get(item.kind.unit, item.kind.unit.upper())
    option = typer.Option(
        item.option, metavar=metavar, help=f"{item.help}  [default: {item.default_text}]"
    )
    annotation = Annotated[str | None, option]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(item.name, kind, default=None, annotation=annotation)


def _with_options_of(table: type[BrokerSettings], command: Any) -> Any:
    """Give `command` one option per setting: typer reads a function's signature."""
    parameters = [_parameter(item) for item in settings_of(table)]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


command = _with_options_of(BrokerSettings, broker)
