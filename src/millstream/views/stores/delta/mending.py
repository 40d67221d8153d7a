"""Takes back what a power cut has torn at the end of a Delta table on a local disk.

Delta writes a commit without syncing it; `table.py` syncs it before a batch counts as
written. A cut in between can leave the name of a commit without its bytes, or without those of its
files, and then nobody can read the table. Such a commit never counted: it is put aside, and the
job writes its batch again. While the system runs, a commit is whole from the moment it has a name.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.base.disk import RealDisk

LOG, LAST_CHECKPOINT = "_delta_log", "_last_checkpoint"
TORN = ".torn"


def mend(table: Path) -> list[Path]:
    """What was put aside, under its new name."""
    log, aside = table / LOG, []
    if log.is_dir():
        for path in _torn(log):
            aside.append(path.rename(path.with_name(path.name + TORN)))
            RealDisk().sync_directory(log)
    return aside


def _torn(log: Path) -> Iterator[Path]:
    checkpoints = sorted(log.glob("*.checkpoint*.parquet"))
    if checkpoints and not _is_readable(checkpoints[-1]):
        yield checkpoints[-1]
        if (log / LAST_CHECKPOINT).exists():
            yield log / LAST_CHECKPOINT
    for commit in sorted(log.glob("*.json"), reverse=True):
        if _is_whole(commit, log.parent):
            return
        yield commit


def _is_whole(commit: Path, table: Path) -> bool:
    try:
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
    except ValueError:
        return False
    return bool(actions) and all(_has_file(action, table) for action in actions)


def _has_file(action: dict[str, Any], table: Path) -> bool:
    if not (added := action.get("add")) or "://" in added["path"]:
        return True
    path = table / unquote(added["path"])
    return path.exists() and path.stat().st_size == added["size"] and _is_readable(path)


def _is_readable(path: Path) -> bool:
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError):
        return False
    return True
