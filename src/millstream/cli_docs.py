"""docs/cli.md, written from the commands themselves.

python -m millstream.cli_docs > docs/cli.md
"""

from collections.abc import Iterator
from typing import Any

import typer

from millstream.cli import EXIT_CODE_MEANINGS, app
from millstream.commands.plain_help import argument_usage, example_in

INTRODUCTION = """\
# The `millstream` command

<!-- Generated: python -m millstream.cli_docs > docs/cli.md -->

Data goes to stdout, everything else to stderr. An error ends with one line that says what to do;
before it, a command line that is not understood shows its usage, and `produce` names the first
records that were not delivered, one per line. `--json` prints data for programs: one document, or
one object per line from `consume`. The client commands work with Millstream's broker and with any
Kafka cluster; [settings](settings.md) says how they find it.
"""


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    subcommands = getattr(command, "commands", None)
    if not subcommands:
        yield path, command
        return
    if command.invoke_without_command:
        yield path, command
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
    usage = " ".join([*path, *map(argument_usage, arguments), "[OPTIONS]"])
    text, example = example_in(str(command.help))
    lines = [f"## {' '.join(path)}", "", "```", usage, "```", "", text, ""]
    lines += ["```console", f"$ {example}", "```", ""] if example else []
    lines += ["| Option | Meaning |", "| --- | --- |"]
    lines += [f"| {_option_names(one)} | {_option_help(one)} |" for one in options_of(command)]
    return "\n".join(lines) + "\n"


def _option_names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    return _in_cell(f"`{', '.join(option.opts)}{value}`")


def _option_help(option: Any) -> str:
    needed = " Required." if option.required else ""
    default = option.default
    shown = default is not None and not option.is_flag and default not in ([], ())
    value = f" Default: `{getattr(default, 'value', default)}`." if shown else ""
    return _in_cell(f"{option.help or ''}{needed}{value}").strip()


def _in_cell(text: str) -> str:
    """A bar would end the cell of a Markdown table, even in code."""
    return text.replace("|", r"\|")


def _exit_codes_to_markdown() -> str:
    rows = [f"| {code} | {_in_cell(meaning)} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    return "\n".join(["## Exit codes", "", "| Code | Meaning |", "| --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    print(to_markdown(), end="")
