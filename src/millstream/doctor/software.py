"""Asks Python, its packages and Java; `verdicts.py` judges."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from millstream.doctor.finding import Finding
from millstream.doctor.verdicts import (
    Installed,
    Requirement,
    java_finding,
    packages_finding,
    python_finding,
    requirement_from,
)
from millstream.processing.java import JavaNotFound, find_java

PACKAGE = "millstream"


def software_findings() -> Iterator[Finding]:
    yield python_finding(tuple(sys.version_info[:3]))
    yield _java()
    yield from _packages()


def _java() -> Finding:
    has_spark = find_spec("pyspark") is not None
    try:
        java = find_java()
    except JavaNotFound as error:
        problem = "; ".join(f"{place}: {what}" for place, what in error.tried.items())
        return java_finding(None, problem, has_spark=has_spark)
    return java_finding(f"Java {java.version}: {java.command}", "", has_spark=has_spark)


def _packages() -> Iterator[Finding]:
    try:
        wanted = requires(PACKAGE) or []
    except PackageNotFoundError:
        mend = "pip install -e . in the checkout"
        yield Finding("packages", "warn", "millstream runs, but is not installed", mend)
        return
    markers = {"sys_platform != 'win32'": sys.platform != "win32"}
    groups: dict[str, list[Requirement]] = {}
    for text in wanted:
        found = requirement_from(text.replace('"', "'"), markers)
        if found is not None:
            groups.setdefault(found.extra, []).append(found)
    for extra in sorted(groups):
        yield packages_finding(_installed(extra, groups[extra]))


def _installed(extra: str, requirements: list[Requirement]) -> Installed:
    versions = {one.name: _version(one.name) for one in requirements}
    return Installed(extra, tuple(requirements), versions)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
