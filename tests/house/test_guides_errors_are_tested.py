"""Each guide ends with what can go wrong; every error in it is one that the code raises, and that a
test produces.

A row is `| ``the message`` <!-- unit/x/test_y.py::test_z --> | why | what to do |`. In the message
`...` stands for what differs from time to time.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
HEADING = "\n## What can go wrong\n"
MESSAGE = re.compile(r"\| (?:``(?P<two>.+?)``|`(?P<one>[^`]+)`) ")
PROOF = re.compile(r"<!-- ([\w/]+\.py)::(\w+) -->")
ROWS_MIN, ROWS_MAX = 3, 8
# A test that names the error, or says three words of its message (or all of a shorter part), is
# about it.
WORDS_IN_A_TEST = 3


class Told(NamedTuple):
    """A row of a box: the parts of its message that are always the same, and its test."""

    parts: tuple[str, ...]
    file: Path
    test: str


class Message(NamedTuple):
    """A text of the source, with gaps where values go, and the error that has it, if any."""

    text: str
    error: str


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_says_what_can_go_wrong(guide: Path) -> None:
    assert ROWS_MIN <= len(rows_of(guide)) <= ROWS_MAX


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_error_is_one_that_the_code_has(guide: Path) -> None:
    told = [told_in(row) for row in rows_of(guide)]
    assert [one.parts for one in told if not raised_with(one.parts)] == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_error_has_a_test_that_produces_it(guide: Path) -> None:
    told = [told_in(row) for row in rows_of(guide)]
    unproved = [f"{one.parts}: {one.file.name}::{one.test}" for one in told if not is_proved(one)]
    assert unproved == []


def rows_of(guide: Path) -> list[str]:
    _, _, box = guide.read_text(encoding="utf-8").partition(HEADING)
    lines = box.partition("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("| `")]


def told_in(row: str) -> Told:
    message, proof = MESSAGE.match(row), PROOF.search(row)
    assert message, f"no message in backticks: {row}"
    assert proof, f"no test is named: {row}"
    parts = (message["two"] or message["one"]).strip().split("...")
    return Told(tuple(filter(None, map(str.strip, parts))), TESTS / proof[1], proof[2])


def is_proved(told: Told) -> bool:
    body = body_of(told.file, told.test)
    errors = {message.error for message in raised_with(told.parts)} - {""}
    return any(re.search(rf"\b{word}\b", body) for word in errors) or any(
        words in body for part in told.parts for words in runs_of(part)
    )


def runs_of(part: str) -> Iterator[str]:
    words = part.split()
    if 1 < len(words) < WORDS_IN_A_TEST:
        yield part
    for start in range(len(words) - WORDS_IN_A_TEST + 1):
        yield " ".join(words[start : start + WORDS_IN_A_TEST])


def raised_with(parts: tuple[str, ...]) -> list[Message]:
    return [message for message in messages() if has_in_order(message.text, parts)]


def has_in_order(text: str, parts: tuple[str, ...]) -> bool:
    place = 0
    for part in parts:
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


@cache
def messages() -> list[Message]:
    files = (ROOT / "src").rglob("*.py")
    return [found for file in files for found in messages_in(ast.parse(file.read_text("utf-8")))]


def messages_in(node: ast.AST, error: str = "") -> Iterator[Message]:
    """Every text below a node, with the class or the `raise` that it is in."""
    match node:
        case ast.ClassDef(name=name) | ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
            error = name
        case ast.Constant(value=str(text)):
            yield Message(text, error)
        case ast.JoinedStr(values=values):
            whole = (one.value if isinstance(one, ast.Constant) else "\0" for one in values)
            yield Message("".join(map(str, whole)), error)
    for child in ast.iter_child_nodes(node):
        yield from messages_in(child, error)


@cache
def body_of(file: Path, test: str) -> str:
    """The text of a test with its decorators; empty if there is no such test."""
    source = file.read_text(encoding="utf-8") if file.exists() else ""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
    return ""
