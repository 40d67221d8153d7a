"""Spark's classes as Java keeps them once they are parsed: mapped at a start instead of read anew.

A session on one machine uses the archive if it is there, and needs about half the CPU to start.
Java itself checks that it fits this Java and every jar, and goes without it if not; but one that
was cut short would end Java, so its size is kept beside it and looked at. Does not make an archive:
`class_archive_maker.py` does.
"""

import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from millstream.processing.java import Java

# An archive that does not fit is no news to anybody: the start is slower, that is all.
SILENT = "-Xlog:cds*=off -Xlog:class+path=off"


def archive_path(java: Java, environment: Mapping[str, str] | None = None) -> Path:
    """In the user's cache; one for each Java and each Spark."""
    environment = os.environ if environment is None else environment
    spark = version("pyspark")
    place = hashlib.sha256(f"{java.command.resolve()} {__file__}".encode()).hexdigest()[:12]
    return cache_directory(environment) / f"spark-{spark}-java-{java.version}-{place}.jsa"


def cache_directory(environment: Mapping[str, str]) -> Path:
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/"), ".cache")
    return Path(cache, "millstream")


def size_path(archive: Path) -> Path:
    """Says how many bytes the archive has, as text; written after it."""
    return archive.with_suffix(".size")


def is_whole(archive: Path) -> bool:
    try:
        return archive.stat().st_size == int(size_path(archive).read_text())
    except (OSError, ValueError):
        return False


def use_options(archive: Path) -> str:
    """Nothing where there is no archive, or its path would be two words of an option."""
    if " " in str(archive) or not is_whole(archive):
        return ""
    return f"-XX:SharedArchiveFile={archive} {SILENT}"


def make_options(archive: Path) -> str:
    """Java writes `archive` when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {SILENT}"
