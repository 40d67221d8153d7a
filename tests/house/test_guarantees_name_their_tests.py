"""docs/guarantees.md: each sentence names a test, and that test is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"
PROOF = re.compile(r"`([a-z0-9_]+/[a-z_/]*(?:\.py)?)(?:::([A-Z]\w+))?(?:::(\w+))?`")


def test_every_promise_names_a_proof() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise")]
    assert len(promises) > 20
    assert [row for row in promises if not PROOF.search(row)] == []


def test_every_proof_is_there() -> None:
    named = PROOF.findall(PAGE.read_text())
    assert ["::".join(one) for one in named if not is_there(*one)] == []


def is_there(path: str, group: str, test: str) -> bool:
    file = TESTS / path
    if not (group or test):
        return file.exists()
    text = file.read_text() if file.is_file() else ""
    return (not group or f"class {group}" in text) and (not test or f"def {test}(" in text)
