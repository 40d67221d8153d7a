"""docs/guarantees.md: each sentence names a test, and that test is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"
PROOF = re.compile(r"`([a-z0-9_]+/[a-z_/]*(?:\.py)?)(?:::(?:[A-Z]\w+::)?(\w+))?`")


def test_every_promise_names_a_proof() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise")]
    assert len(promises) > 20
    assert [row for row in promises if not PROOF.search(row)] == []


def test_every_proof_is_there() -> None:
    missing = []
    for path, test in PROOF.findall(PAGE.read_text()):
        file = TESTS / path
        if not file.exists() or (test and f"def {test}(" not in file.read_text()):
            missing.append(f"{path}::{test}")
    assert missing == []
