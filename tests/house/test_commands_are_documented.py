import shlex
from pathlib import Path
from typing import Any

import pytest

from millstream.cli import EXIT_CODES
from millstream.cli_docs import commands, options_of, to_markdown
from millstream.commands.plain_help import example_in

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_document_is_current() -> None:
    current = DOCUMENT.read_text(encoding="utf-8") == to_markdown()
    assert current, "run: python -m millstream.cli_docs > docs/cli.md"


def test_every_command_and_option_is_there() -> None:
    sections = DOCUMENT.read_text(encoding="utf-8").split("\n## ")
    for path, command in commands():
        section = next(one for one in sections if one.startswith(f"{' '.join(path)}\n"))
        for option in options_of(command):
            assert all(name in section for name in option.opts), f"{path} {option.opts}"


def test_every_command_and_option_is_explained() -> None:
    for path, command in commands():
        assert command.help, f"{path} has no help"
        for option in options_of(command):
            assert option.help, f"{path} {option.opts} has no help"


@pytest.mark.parametrize(("path", "command"), commands(), ids=lambda one: str(one))
def test_every_command_has_an_example_that_it_understands(
    path: tuple[str, ...], command: Any
) -> None:
    _, example = example_in(command.help)
    assert example, f"{' '.join(path)}: end its help with a line `Example: millstream ...`"
    words = shlex.split(example.rpartition("|")[2])  # what is piped into it is not ours to check
    assert tuple(words[: len(path)]) == path
    command.make_context(path[-1], words[len(path) :])


def test_every_exit_code_is_there() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for code in EXIT_CODES.values():
        assert f"\n| {code} | " in text
