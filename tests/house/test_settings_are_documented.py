from pathlib import Path

from millstream.settings import TABLES, settings_of, to_markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_document_is_current() -> None:
    current = DOCUMENT.read_text(encoding="utf-8") == to_markdown()
    assert current, "run: python -m millstream.settings > docs/settings.md"


def test_every_setting_is_there_with_its_environment_variable() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for table in TABLES:
        for item in settings_of(table):
            assert f"| `{item.name}` | `{item.env}` |" in text


def test_every_setting_is_explained() -> None:
    for table in TABLES:
        for item in settings_of(table):
            assert item.help.endswith("."), f"{item.name} needs a sentence"
