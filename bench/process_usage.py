"""What a process and all its children have used so far: CPU and memory, read from /proc.

Linux only. Figures are sums over the tree: a broker may do part of its work in child processes.
"""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Fields of /proc/PID/stat, counted from the state that follows the name in parentheses, which
# may itself hold spaces.
PARENT_PID, USER_TICKS, SYSTEM_TICKS = 1, 11, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A moment's reading; differences of two are what happened in between."""

    cpu_s: float
    resident_bytes: int
    resident_bytes_peak: int


def usage_of(pid: int) -> Usage:
    tree = process_tree(pid)
    return Usage(
        cpu_s=sum(_cpu_s(member) for member in tree),
        resident_bytes=sum(_memory_bytes(member, "VmRSS") for member in tree),
        resident_bytes_peak=sum(_memory_bytes(member, "VmHWM") for member in tree),
    )


def process_tree(pid: int) -> list[int]:
    """The process and its living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[PARENT_PID]), []).append(int(entry.name))
    tree = [pid]
    for member in tree:  # grows while it is read
        tree.extend(children.get(member, []))
    return tree


def _stat(pid: int) -> list[str]:
    """The fields after the name; empty when the process has just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    if not fields:
        return 0.0
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / TICKS_PER_S


def _memory_bytes(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024  # the unit is always kB
    return 0
