"""docs/cli.md, written from the commands themselves.

python -m millstream.cli_docs > docs/cli.md
"""

from collections.abc import Iterator
from typing import Any

import typer

from millstream.cli import EXIT_CODE_MEANINGS, app

INTRODUCTION = """\
# The `millstream` command

<!-- Generated: python -m millstream.cli_docs > docs/cli.md -->

Data goes to stdout, everything else to stderr; an error is one line. `--json` prints data for
programs: one document, or one object per line from `consume`. The client commands work with
Millstream's broker and with any Kafka cluster; [settings](settings.md) says how they find it.
"""


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    subcommands = getattr(command, "commands", None)
    if not subcommands:
        yield path, command
        return
    for name, subcommand in subcommands.items():
        yield from walk(subcommand, (*path, name))


def commands() -> list[tuple[tuple[str, ...], Any]]:
    return list(walk(typer.main.get_command(app), ("millstream",)))


def options_of(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option"]


def to_markdown() -> str:
    sections = [_command_to_markdown(path, command) for path, command in commands()]
    return "\n".join([INTRODUCTION, *sections, _exit_codes_to_markdown()])


def _command_to_markdown(path: tuple[str, ...], command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([*path, *map(_argument_usage, arguments), "[OPTIONS]"])
    lines = [f"## {' '.join(path)}", "", "```", usage, "```", "", str(command.help), ""]
    lines += ["| Option | Meaning |", "| --- | --- |"]
    lines += [f"| {_option_names(one)} | {_option_help(one)} |" for one in options_of(command)]
    return "\n".join(lines) + "\n"


def _argument_usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = f"{name}..." if argument.nargs == -1 else name
    return many if argument.required else f"[{many}]"


def _option_names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    return f"`{', '.join(option.opts)}{value}`".replace("|", r"\|")


def _option_help(option: Any) -> str:
    needed = " Required." if option.required else ""
    default = option.default
    shown = default is not None and not option.is_flag and default not in ([], ())
    value = f" Default: `{getattr(default, 'value', default)}`." if shown else ""
    return f"{option.help or ''}{needed}{value}".replace("|", r"\|").strip()


def _exit_codes_to_markdown() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    return "\n".join(["## Exit codes", "", "| Code | Meaning |", "| --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    print(to_markdown(), end="")
