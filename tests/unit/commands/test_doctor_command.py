"""`millstream doctor`: a line for each finding, JSON, and 1 when something will not work."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.cli import app
from millstream.doctor import checkup
from millstream.doctor.finding import Finding

WELL = Finding("python", "ok", "Python 3.11.7")
DOUBT = Finding("port 8080", "warn", "taken by process 7 (nginx)", "stop that one")
FAULT = Finding("java", "fail", "no Java 17 or newer", "install a JDK")


def asked(monkeypatch: pytest.MonkeyPatch, *found: Finding, words: tuple[str, ...] = ()) -> str:
    def findings(_data: Path | None) -> Iterator[Finding]:
        return iter(found)

    monkeypatch.setattr(checkup, "findings", findings)
    done = CliRunner().invoke(app, ["doctor", *words])
    assert done.exit_code == (1 if FAULT in found else 0)
    return done.output


def test_each_finding_is_a_line_and_what_is_wrong_has_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch, WELL, DOUBT, FAULT).splitlines() == [
        "ok    python          Python 3.11.7",
        "warn  port 8080       taken by process 7 (nginx)",
        "                      to fix it: stop that one",
        "fail  java            no Java 17 or newer",
        "                      to fix it: install a JDK",
        "1 fault, 1 doubt",
    ]


def test_a_doubt_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, WELL, DOUBT).endswith("all well, 1 doubt\n")
    assert asked(monkeypatch, WELL).endswith("all well\n")


def test_findings_can_be_read_by_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(asked(monkeypatch, WELL, FAULT, words=("--json",)))
    assert found[0] == {"check": "python", "verdict": "ok", "told": WELL.told, "mend": ""}
    assert found[1]["mend"] == "install a JDK"


def test_this_machine_can_be_asked(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--json", "--data", str(tmp_path)])
    checks = {one["check"] for one in json.loads(done.output)}
    assert {"python", "java", "disk sync", "clock", "memory", "port 9092", "data"} <= checks
