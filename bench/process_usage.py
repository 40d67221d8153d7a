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


class OthersShare:
    """How much of the machine's CPU others use while we measure, the kernel's own work included.

    Ours is what this process and its children used, counted when a child has ended: ask when
    all have.
    """

    def __init__(self) -> None:
        self._busy_s = _machine_cpu_s()
        self._all_s = _machine_cpu_s(is_idle_too=True)
        self._ours_s = _own_cpu_s()

    def percent(self) -> float:
        all_s = _machine_cpu_s(is_idle_too=True) - self._all_s
        others_s = (_machine_cpu_s() - self._busy_s) - (_own_cpu_s() - self._ours_s)
        return max(0.0, 100 * others_s / all_s)


def _machine_cpu_s(*, is_idle_too: bool = False) -> float:
    # cpu user nice system idle iowait irq softirq steal guest guest_nice (guests are in user)
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - (0 if is_idle_too else idle + waiting)) / TICKS_PER_S


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


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
