"""A process's part of the history, in a file of its own, one JSON object per line.

A line is written before a call and another after it, each with one system call: kill -9 of the
process keeps every whole line. What has no last line was cut short, and becomes `info`.

    {"number": 7, "at_ns": 123, "phase": "invoke", "kind": "transaction"}
    {"number": 7, "at_ns": 130, "phase": "progress", "sends": [["events/0", "w1/5", null]]}
    {"number": 7, "at_ns": 150, "phase": "ending", "ending": "commit"}
    {"number": 7, "at_ns": 190, "phase": "ok", "sends": [["events/0", "w1/5", 42]]}

Later lines of a number replace what earlier ones say. The clock is the system's monotonic one,
the same for all processes.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.consistency.history import (
    Ending,
    History,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Read,
    Send,
)

COMPLETIONS = frozenset(Outcome)


class HistoryFile:
    """Written by one process, as it goes."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        self._number = 0

    def invoke(self, kind: Kind, **facts: Any) -> int:
        """An operation begins; returns its number."""
        self._number += 1
        self._write(self._number, "invoke", kind=kind, **facts)
        return self._number

    def progress(self, number: int, **facts: Any) -> None:
        self._write(number, "progress", **facts)

    def ending(self, number: int, ending: Ending) -> None:
        """The end of a transaction is about to be asked for."""
        self._write(number, "ending", ending=ending)

    def complete(self, number: int, outcome: Outcome, **facts: Any) -> None:
        self._write(number, outcome, **facts)

    def note(self, kind: Kind, **facts: Any) -> None:
        """What needs no answer: it begins and ends at once."""
        self.complete(self.invoke(kind, **facts), Outcome.OK)

    def _write(self, number: int, phase: str, **facts: Any) -> None:
        line = {"number": number, "at_ns": time.monotonic_ns(), "phase": phase, **facts}
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def read_history_file(path: Path, *, process: str) -> History:
    return operations(process, _lines(path))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last one may be torn
            yield json.loads(line)


def operations(process: str, lines: Iterable[dict[str, Any]]) -> History:
    """Lines of one process, put together to operations in their order."""
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        facts = found.setdefault(line["number"], {})
        facts.update(line)
        phase, at_ns = line["phase"], line["at_ns"]
        if phase == "invoke":
            facts["invoked_ns"] = at_ns
        elif phase == "ending":
            facts["ending_ns"] = at_ns
        elif phase in COMPLETIONS:
            facts["completed_ns"] = at_ns
    return [_operation(process, facts) for facts in found.values()]


def _operation(process: str, facts: dict[str, Any]) -> Operation:
    phase = facts["phase"]
    isolation, ending = facts.get("isolation"), facts.get("ending")
    return Operation(
        process=process,
        number=facts["number"],
        kind=Kind(facts["kind"]),
        invoked_ns=facts["invoked_ns"],
        completed_ns=facts.get("completed_ns"),
        outcome=Outcome(phase) if phase in COMPLETIONS else Outcome.INFO,
        sends=tuple(Send(*send) for send in facts.get("sends", ())),
        polls=tuple(Read(*read) for read in facts.get("polls", ())),
        isolation=Isolation(isolation) if isolation else None,
        ending=Ending(ending) if ending else None,
        ending_ns=facts.get("ending_ns"),
        group=facts.get("group"),
        positions=facts.get("positions", {}),
        note=facts.get("note", ""),
    )
