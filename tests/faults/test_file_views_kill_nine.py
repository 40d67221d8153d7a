"""kill -9 of a process that writes a view into files, at moments that the system chooses.

What it said to have written is there, and the rows are those of a whole number of batches.
"""

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.view_batches import batches_in, open_view, rows_after, write_batches

ROUNDS = 5


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "parquet", "search"])
def test_a_killed_writer_leaves_whole_batches_and_goes_on(kind: str, tmp_path: Path) -> None:
    random, before = Random(7), 0
    for _ in range(ROUNDS):
        told = write_until_killed(kind, tmp_path, batches=random.randrange(1, 8), random=random)
        store = open_view(kind, tmp_path)
        done = batches_in(store)
        assert done > told >= before
        reader = store.reader()
        found = {row["id"]: (row["n"], row["name"]) for row in reader.scan()}
        assert found == rows_after(done)
        assert reader.position() == {"t": {0: done - 1}}
        before = done
    next(write_batches(open_view(kind, tmp_path)))
    assert batches_in(open_view(kind, tmp_path)) == before + 1


def write_until_killed(kind: str, path: Path, *, batches: int, random: Random) -> int:
    """The last batch that it told of, before it was killed in the midst of a later one."""
    command = [sys.executable, "-m", "tests.support.view_batches", kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(batches)]
        time.sleep(random.random() * 0.1)  # any moment will do
        process.kill()
        told += [int(line) for line in process.stdout.read().split()]
    return told[-1]
