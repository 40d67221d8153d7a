"""Losing what was not synced: kill -9 alone does not, as the operating system keeps it.

Inside the broker's process `keep_journal` writes down the size of each log file at each sync.
After the kill `lose_unsynced` cuts the log files to those sizes, or somewhere behind them: a power
cut, as far as the bytes of log files go. Names and indexes are left alone; the simulated disk of
tests/faults/test_log_power_cut.py takes those away too.
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from millstream.base.disk import RealFile
from tests.faults.consistency.replacing import replace

SYNCED, CUT = "synced", "cut"


def keep_journal(path: Path) -> None:
    """From here on every sync and truncation of this process is written to the journal."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(deed: str, file: RealFile, size: int) -> None:
        os.write(descriptor, f"{deed} {size} {file.path}\n".encode())

    def journaled_sync(sync: Callable[[RealFile], None]) -> Callable[[RealFile], None]:
        def sync_and_note(file: RealFile) -> None:
            size = file.size  # what comes while the sync runs may or may not be part of it
            sync(file)
            note(SYNCED, file, size)

        return sync_and_note

    def journaled_truncate(
        truncate: Callable[[RealFile, int], None],
    ) -> Callable[[RealFile, int], None]:
        def truncate_and_note(file: RealFile, size: int) -> None:
            truncate(file, size)
            note(CUT, file, size)

        return truncate_and_note

    replace(RealFile, "sync", journaled_sync)
    replace(RealFile, "truncate", journaled_truncate)


def lose_unsynced(data_dir: Path, journal: Path, random: Random) -> int:
    """Cut each log file at its synced size or a bit behind; returns how many bytes went."""
    synced = _synced_sizes(journal)
    lost = 0
    for file in sorted(data_dir.rglob("*.log")):
        written = file.stat().st_size
        durable = min(written, synced.get(str(file), 0))
        kept = random.choice([durable, random.randint(durable, written)])
        if kept < written:
            os.truncate(file, kept)
            lost += written - kept
    return lost


def _synced_sizes(journal: Path) -> dict[str, int]:
    """Of two syncs of one file at once, the one that began first may be noted last: what the other
    has synced stays so."""
    sizes: dict[str, int] = {}
    for line in journal.read_text().splitlines():
        deed, size, path = line.split(" ", 2)
        known = sizes.get(path, 0) if deed == SYNCED else 0
        sizes[path] = max(known, int(size))
    return sizes
