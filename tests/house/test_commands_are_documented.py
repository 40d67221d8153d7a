from pathlib import Path

from millstream.cli import EXIT_CODES
from millstream.cli_docs import commands, options_of, to_markdown

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


def test_every_exit_code_is_there() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for code in EXIT_CODES.values():
        assert f"\n| {code} | " in text
