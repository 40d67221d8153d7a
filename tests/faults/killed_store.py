"""The writer of a view, killed at one step after another; prints what a reader sees after each.

    python -m tests.faults.killed_store CHOICE DIRECTORY BOOTSTRAP

CHOICE is Python: stores.Sqlite(), stores.Redis("redis://..."). Each writer is a fork of this
process, which has loaded all code and started nothing: a kill costs milliseconds, so there can be
many. As Spark would, a writer repeats the batch after the last one that it has noted as done.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from millstream import stores
from millstream.base.ports import BatchReceipt
from millstream.schemas.arrow_types import schema_to_arrow
from millstream.schemas.declaration import schema_of
from millstream.views.store import Home, ViewNotFound, ViewStore

KILLS_MAX = 40
PRICES = "item STRING, price DOUBLE, tags ARRAY<STRING>"
CHANGES = f"{PRICES}, _change STRING"
ITEMS = 12
# A step is a call that code of a store makes.
STEPS_OF = os.sep + os.path.join("views", "stores") + os.sep

Rows = dict[str, dict[str, Any]]


def batch_of(number: int) -> list[dict[str, Any]]:
    """Some items change, one goes."""
    changed = [
        {
            "item": f"item {(number * 5 + place * 7) % ITEMS}",
            "price": number + place / 4,
            "tags": [f"batch {number}"] * place,
            "_change": "upsert",
        }
        for place in range(3)
    ]
    gone = {"item": f"item {(number * 5 + 1) % ITEMS}", "_change": "delete"}
    return [*changed, gone | {"price": None, "tags": None}]


def rows_after(batches: int) -> Rows:
    rows: Rows = {}
    for number in range(batches):
        for change in batch_of(number):
            item = change["item"]
            if change["_change"] == "delete":
                rows.pop(item, None)
            else:
                rows[item] = {name: change[name] for name in ("item", "price", "tags")}
    return rows


class Trial:
    def __init__(self, choice: Any, directory: Path, bootstrap: str) -> None:
        self._choice = choice
        client = {"bootstrap.servers": bootstrap}
        self._home = Home(app="shop", data=directory, client=client)
        self._done = directory / "done.txt"
        self._done.write_text("0")

    @property
    def done(self) -> int:
        return int(self._done.read_text())

    def _open(self) -> ViewStore:
        store: ViewStore = self._choice.open("prices", ("item",), self._home)
        return store

    def write(self, batches: int) -> None:
        writer = self._open().writer(1)
        epoch = writer.claim("prices", schema_of(PRICES))
        columns = schema_to_arrow(schema_of(CHANGES))
        for number in range(self.done, batches):
            receipt = BatchReceipt(
                job="prices",
                epoch=epoch,
                query="checkpoint",
                batch=number,
                positions={"prices": {0: number + 1}},
            )
            writer.write(receipt, pa.Table.from_pylist(batch_of(number), columns))
            self._note(number + 1)
        writer.close()

    def _note(self, done: int) -> None:
        """As Spark's log of commits: whole, or as before."""
        new = self._done.with_suffix(".new")
        new.write_text(str(done))
        new.replace(self._done)

    def seen(self) -> dict[str, Any]:
        try:
            reader = self._open().reader()
            position = reader.position()
            rows = {row["item"]: row for row in reader.scan()}
            reader.close()
        except ViewNotFound:
            return {"batches": 0, "rows": {}}
        return {"batches": position.get("prices", {}).get(0, 0), "rows": rows}


def kill_at(step: int) -> None:
    """Kill this process at its so-manyth step, in whichever of the store's functions that is."""
    left = step

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event in ("call", "c_call") and STEPS_OF in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def steps_of(work: Callable[[], None]) -> int:
    steps = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal steps
        if event in ("call", "c_call") and STEPS_OF in frame.f_code.co_filename:
            steps += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return steps


def loaded_by(work: Callable[[], Any]) -> list[str]:
    """Modules that forks would load again and again."""
    work()
    return [name for name in sys.modules if name != "__main__"]


def in_fork(work: Callable[[], Any]) -> tuple[int, Any]:
    """The status of a process that does this and ends, and what it gave back."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            answer = json.dumps(work())
            os.write(writing, answer.encode())
            status = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answer_file:
        answer = answer_file.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(answer) if answer else None


def main(choice: str, directory: str, bootstrap: str) -> None:
    trial = Trial(eval(choice, {"stores": stores}), Path(directory), bootstrap)
    # One run tells how many steps two batches and the claim before them take, and what is loaded.
    _, (steps, modules) = in_fork(lambda: (steps_of(lambda: trial.write(2)), loaded_by(trial.seen)))
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    assert threading.active_count() == 1
    stride = max(1, steps // KILLS_MAX)
    for step in range(1, steps + 1, stride):
        before = trial.done

        def killed(step: int = step, before: int = before) -> None:
            kill_at(step)
            trial.write(before + 2)

        status, _ = in_fork(killed)
        _, seen = in_fork(trial.seen)
        print(json.dumps({"step": step, "status": status, "before": before} | seen), flush=True)
    status, _ = in_fork(lambda: trial.write(trial.done + 2))
    _, seen = in_fork(trial.seen)
    print(json.dumps({"step": 0, "status": status, "before": trial.done - 2} | seen), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
