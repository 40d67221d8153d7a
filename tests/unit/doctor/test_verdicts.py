"""From facts to findings: what is well, what is doubtful, and how to mend it."""

from datetime import UTC, datetime

import pytest

from millstream.base.quantity import GIB, MIB
from millstream.doctor.finding import Finding
from millstream.doctor.verdicts import (
    DataDirectory,
    Installed,
    Requirement,
    broker_finding,
    clock_finding,
    data_finding,
    file_system_finding,
    files_finding,
    java_finding,
    memory_finding,
    packages_finding,
    port_finding,
    python_finding,
    requirement_from,
    space_finding,
    sync_finding,
)

NOW = datetime(2026, 11, 18, 1, 2, 3, tzinfo=UTC)
SPARK = Requirement("pyspark", "==4.3.0", "spark")


def clock(now: datetime, drift_ms: float = 0.0) -> Finding:
    return clock_finding(now, zone="UTC", drift_ms=drift_ms)


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (python_finding((3, 11, 0)), "ok"),
        (python_finding((3, 10, 12)), "fail"),
        (java_finding("Java 17: /usr/bin/java", "", has_spark=True), "ok"),
        (java_finding(None, "PATH: Java 8", has_spark=True), "fail"),
        (java_finding(None, "", has_spark=False), "warn"),
        (space_finding("/data", 2 * GIB), "ok"),
        (space_finding("/data", 2 * GIB - 1), "warn"),
        (space_finding("/data", 256 * MIB - 1), "fail"),
        (file_system_finding("/data", "ext4"), "ok"),
        (file_system_finding("/data", None), "ok"),
        (file_system_finding("/tmp", "tmpfs"), "warn"),
        (file_system_finding("/home", "nfs4"), "warn"),
        (sync_finding(20.0), "ok"),
        (sync_finding(20.1), "warn"),
        (clock(NOW), "ok"),
        (clock(NOW.replace(year=1970)), "fail"),
        (clock(NOW.replace(year=2101)), "fail"),
        (clock(NOW, drift_ms=-80.0), "warn"),
        (files_finding(-1), "ok"),
        (files_finding(4_096), "ok"),
        (files_finding(4_095), "warn"),
        (files_finding(255), "fail"),
        (memory_finding(4 * GIB), "ok"),
        (memory_finding(4 * GIB - 1), "warn"),
        (memory_finding(GIB - 1), "fail"),
        (port_finding(9092, "the broker", is_free=True, holder=""), "ok"),
        (port_finding(9092, "the broker", is_free=False, holder=""), "warn"),
        (data_finding(DataDirectory("d", exists=False)), "ok"),
        (data_finding(DataDirectory("d")), "ok"),
        (data_finding(DataDirectory("d", is_directory=False)), "fail"),
        (data_finding(DataDirectory("d", is_ours=False)), "fail"),
        (data_finding(DataDirectory("d", is_writable=False)), "fail"),
        (data_finding(DataDirectory("d", owner="process 7")), "warn"),
        (broker_finding("127.0.0.1:9092", "1 in the cluster, 3 topics", ""), "ok"),
        (broker_finding("127.0.0.1:9092", "", "no answer"), "fail"),
    ],
)
def test_facts_have_a_verdict_and_what_is_wrong_a_way_out(finding: Finding, verdict: str) -> None:
    assert finding.verdict == verdict
    assert bool(finding.mend) == (verdict != "ok")
    assert finding.told


def test_a_port_that_is_taken_names_who_has_it() -> None:
    finding = port_finding(8080, "the console", is_free=False, holder="process 7 (nginx)")
    assert finding.told == "taken by process 7 (nginx)"
    assert "--listen 127.0.0.1:0" in finding.mend


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rich>=14", Requirement("rich", ">=14")),
        ("pyspark==4.3.0; extra == 'spark'", SPARK),
        ("psycopg[binary]>=3.3; extra == 'postgres'", Requirement("psycopg", ">=3.3", "postgres")),
        ("uvloop>=0.22; sys_platform != 'win32'", Requirement("uvloop", ">=0.22")),
    ],
)
def test_requirements_are_read_from_metadata(text: str, expected: Requirement) -> None:
    assert requirement_from(text, {}) == expected


def test_a_requirement_of_another_system_is_none() -> None:
    text = "uvloop>=0.22; sys_platform != 'win32'"
    assert requirement_from(text, {"sys_platform != 'win32'": False}) is None


@pytest.mark.parametrize(
    ("conditions", "version", "is_met"),
    [
        ("==4.3.0", "4.3.0", True),
        ("==4.3.0", "4.3.1", False),
        (">=14", "14.0.1", True),
        (">=14", "13.9", False),
        ("<3", "2.3.3", True),
        ("<3", "3.0", False),
        (">=1,<3", "2.9.post0", True),
        ("", "1", True),
    ],
)
def test_versions_are_compared_by_number(conditions: str, version: str, is_met: bool) -> None:
    assert Requirement("x", conditions).is_met_by(version) is is_met


def test_a_version_that_is_not_supported_is_a_fault() -> None:
    finding = packages_finding(Installed("spark", (SPARK,), {"pyspark": "4.2.0"}))
    assert finding.verdict == "fail"
    assert finding.told == "pyspark 4.2.0 (wanted: ==4.3.0)"
    assert finding.mend == "pip install 'millstream[spark]'"


def test_an_extra_that_is_not_there_is_no_fault() -> None:
    finding = packages_finding(Installed("spark", (SPARK,), {"pyspark": None}))
    assert finding.verdict == "ok"
    assert finding.told == (
        "not installed (for jobs and views): pyspark: pip install 'millstream[spark]'"
    )


def test_what_is_always_needed_must_be_there() -> None:
    needed = Installed("", (Requirement("rich", ">=14"),), {"rich": None})
    assert packages_finding(needed).verdict == "fail"
