"""The head of each API's file says which versions there are, what it does and what it does not."""

import re
from pathlib import Path

import pytest

import millstream.broker.apis
from millstream.broker.handlers import HANDLERS
from millstream.broker.security.acls import Operation
from millstream.broker.security.requirements import REQUIREMENTS, Requirement
from millstream.broker.wire import REQUESTS

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(millstream.broker.apis.__path__[0]).glob("api_*.py"))
GAPS = (ROOT / "docs" / "not_supported.md").read_text(encoding="utf-8")
HEAD = re.compile(r"# (?P<name>\w+), versions? (?P<first>\d+)(?:-(?P<last>\d+))?\.\n")


def head_of(file: Path) -> str:
    """The comment before the first line of code."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[:end])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_head_names_the_versions_that_are_offered(file: Path) -> None:
    head = HEAD.match(head_of(file))
    assert head, "the first line is: # Name, versions 0-9."
    first = int(head["first"])
    handler = HANDLERS[int(file.stem.split("_")[1])]
    assert handler.versions == range(first, int(head["last"] or first) + 1)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_head_says_what_it_does(file: Path) -> None:
    assert "#   Does:     " in head_of(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_it_does_not_do_is_in_the_list_of_gaps(file: Path) -> None:
    text = head_of(file)
    head = HEAD.match(text)
    if head and "Does not:" in text:
        assert f"**{head['name']}**" in GAPS, (
            f"docs/not_supported.md has no line for {head['name']}"
        )


def test_every_handler_has_a_file_with_its_number() -> None:
    assert {int(file.stem.split("_")[1]) for file in FILES} == HANDLERS.keys()


def is_for_brokers(requirement: Requirement) -> bool:
    grants = [grant for need in requirement.needs for grant in need.any_of]
    return bool(grants) and all(grant.operation is Operation.CLUSTER_ACTION for grant in grants)


def test_every_api_that_clients_may_ask_for_is_offered_or_in_the_list_of_gaps() -> None:
    missing = [
        requirement.name
        for key, requirement in REQUIREMENTS.items()
        if key not in HANDLERS and not is_for_brokers(requirement) and requirement.name not in GAPS
    ]
    assert missing == []


def test_every_api_is_offered_in_kafka_s_newest_version_or_in_the_list_of_gaps() -> None:
    older = [
        REQUIREMENTS[key].name
        for key, handler in HANDLERS.items()
        if handler.versions[-1] != REQUESTS[key].__schema__.versions[-1]
    ]
    said = next(line for line in GAPS.splitlines() if "Not in Kafka's newest version" in line)
    assert [name for name in older if name not in said] == []
