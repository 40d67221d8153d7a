"""docs/reference/kafka_apis.md, made from the handlers and the heads of their files.

python -m millstream.broker.api_document > docs/reference/kafka_apis.md
"""

import re
from dataclasses import dataclass
from pathlib import Path

import millstream.broker.apis
from millstream.broker.handlers import HANDLERS

INTRODUCTION = """\
# Kafka's APIs

<!-- Generated: python -m millstream.broker.api_document > docs/reference/kafka_apis.md -->

What the embedded broker speaks: {count} APIs of Kafka's protocol, told to clients by ApiVersions.
Whatever is not here is not offered, and clients that ask for it say so. Every gap, with its reason,
is in [not_supported.md](../not_supported.md); what each API asks of access rules is one table,
[requirements.py](../../src/millstream/broker/security/requirements.py).

| API | number | versions | does | does not |
|---|---|---|---|---|
"""
# The parts of a head: `#   Does:     ...`, `#   Does not: ...`, each over several lines.
NAME = re.compile(r"# (?P<name>\w+), versions? ")
PART = re.compile(r"#   (?P<what>Does|Does not): +(?P<text>.*(?:\n#  {8,}.*)*)")
# Where the code of it is: for readers of the file, not of the document.
ASIDE = re.compile(r" \([\w/`]+\.(?:py|md)`?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHead:
    """What the first comment of an API's file says."""

    name: str
    does: str
    does_not: str


def to_markdown() -> str:
    files = sorted(Path(millstream.broker.apis.__path__[0]).glob("api_*.py"))
    rows = [_row(int(file.stem.split("_")[1]), read_head(file)) for file in files]
    return INTRODUCTION.format(count=len(rows)) + "\n".join(rows) + "\n"


def read_head(file: Path) -> ApiHead:
    text = file.read_text(encoding="utf-8").partition("\n\n")[0]
    name = NAME.match(text)
    assert name, f"{file.name}: the first line is: # Name, versions 0-9."
    parts = {part["what"]: _one_line(part["text"]) for part in PART.finditer(text)}
    return ApiHead(
        name=name["name"], does=parts.get("Does", ""), does_not=parts.get("Does not", "")
    )


def _one_line(text: str) -> str:
    return ASIDE.sub("", re.sub(r"\n#\s+", " ", text)).replace("|", r"\|")


def _row(number: int, head: ApiHead) -> str:
    versions = HANDLERS[number].versions
    offered = f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else f"{versions[0]}"
    return f"| {head.name} | {number} | {offered} | {head.does} | {head.does_not} |"


if __name__ == "__main__":
    print(to_markdown(), end="")
