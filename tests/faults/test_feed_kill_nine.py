"""A subscriber that is killed at any moment goes on by its token, and has every change once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.view_job import ViewJob
from tests.support.waiting import eventually

KILLS = 5
# Keeps its rows and its token in one step: a line of a file, of which the last whole one counts.
SUBSCRIBER = """
import json, sys
from pathlib import Path
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.view import View

path, kept = Path(sys.argv[1]), Path(sys.argv[2])
lines = kept.read_text().split("\\n")[:-1] if kept.exists() else []
state = json.loads(lines[-1]) if lines else {"rows": {}, "seen": [], "token": None}
with View("counts", ViewReader(path, view="counts")) as view, kept.open("a") as file:
    for change in view.subscribe(since=state["token"]):
        if change.kind == "reset":
            state["rows"] = {}
        elif change.row is not None:
            state["rows"][change.key["url"]] = change.row["count"]
        elif change.kind == "delete":
            state["rows"].pop(change.key["url"], None)
        if change.kind in ("upsert", "delete", "reset"):
            state["seen"].append([change.kind, change.version])
        if change.token is not None:
            state["token"] = change.token
            file.write(json.dumps(state) + "\\n")
            file.flush()
"""


class Kept:
    """What the subscriber has written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def last(self) -> dict[str, Any]:
        lines = self.lines()
        return dict(json.loads(lines[-1])) if lines else {"rows": {}, "seen": []}

    def wait_for_more_than(self, count: int) -> None:
        eventually(lambda: len(self.lines()) > count, what="it goes on", within_s=60)


def start(path: Path, kept: Kept) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", SUBSCRIBER, str(path), str(kept.path)])


def change(job: ViewJob) -> None:
    """Three changes: of a row that stays, one that comes and one that goes."""
    number = job.batch
    job.put({"/": number, f"/{number}": 1, f"/{number - 1}": None})


@pytest.mark.full
def test_a_killed_subscriber_goes_on_and_has_every_change_once(tmp_path: Path) -> None:
    path, kept = tmp_path / "counts.sqlite", Kept(tmp_path / "kept.jsonl")
    with ViewJob(path) as job:
        job.put({"/": 0, "/0": 1})
        subscriber = start(path, kept)
        kept.wait_for_more_than(0)  # it has the current rows
        for _ in range(KILLS):
            before = len(kept.lines())
            change(job)
            kept.wait_for_more_than(before)
            for _ in range(20):
                change(job)
            subscriber.kill()
            subscriber.wait()
            subscriber = start(path, kept)
        last = job.batch - 1
        wanted = {"/": last, f"/{last}": 1}
        eventually(lambda: kept.last()["rows"] == wanted, what="it has the view", within_s=60)
        subscriber.kill()
        subscriber.wait()
    seen = [version for _, version in kept.last()["seen"]]
    assert seen == [version for version in range(2, job.batch + 1) for _ in range(3)]
