"""Asks the disk, the clock, the limits of a process and the memory; `verdicts.py` judges."""

import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from millstream.doctor.finding import Finding
from millstream.doctor.verdicts import (
    clock_finding,
    file_system_finding,
    files_finding,
    memory_finding,
    space_finding,
    sync_finding,
)

SYNCS = 15
SYNC_BYTES = 4_096
CLOCK_SECONDS = 0.2
MOUNTS = Path("/proc/self/mounts")
# Where a container is told how much it may take.
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_findings(place: Path) -> Iterator[Finding]:
    """`place`: where the data is, or would be."""
    there = nearest(place)
    yield space_finding(str(there), shutil.disk_usage(there).free)
    yield file_system_finding(str(there), file_system_of(there))
    yield _sync(there)
    yield _clock()
    yield files_finding(_hard_limit())
    yield memory_finding(memory_bytes())


def nearest(place: Path) -> Path:
    """The directory itself, or the one that it would be made in."""
    place = place.absolute()
    return next(one for one in (place, *place.parents) if one.is_dir())


def file_system_of(place: Path, mounts: Path = MOUNTS) -> str | None:
    """By the longest mount point that it is under; None where the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    points = {line.split()[1].replace("\\040", " "): line.split()[2] for line in lines}
    under = [point for point in points if place.resolve().is_relative_to(point)]
    return points[max(under, key=len)] if under else None


def _sync(place: Path) -> Finding:
    try:
        return sync_finding(sync_ms(place))
    except OSError as error:
        mend = "choose a directory that this user may write (--data)"
        return Finding("disk sync", "fail", f"{place}: {os.strerror(error.errno or 0)}", mend)


def sync_ms(place: Path) -> float:
    """The median of some: what a record waits for until it is on disk."""
    took = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNCS):
            file.write(b"\0" * SYNC_BYTES)
            file.flush()
            started = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            took.append(time.perf_counter() - started)
    return statistics.median(took) * 1_000


def _clock() -> Finding:
    wall, counted = time.time(), time.monotonic()
    time.sleep(CLOCK_SECONDS)
    drift_ms = ((time.time() - wall) - (time.monotonic() - counted)) * 1_000
    zone = time.strftime("%Z") or "unknown"
    return clock_finding(datetime.now(UTC), zone=zone, drift_ms=drift_ms)


def _hard_limit() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if hard == resource.RLIM_INFINITY else hard


def memory_bytes() -> int:
    """Of the machine, or what its container may take of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in MEMORY_LIMITS:
        try:
            total = min(total, int(Path(file).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return total
