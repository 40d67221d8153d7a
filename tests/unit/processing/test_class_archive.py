"""Where the archive of Spark's classes is, and when a session uses it."""

from pathlib import Path

import pytest

from millstream.processing.class_archive import (
    archive_path,
    make_options,
    size_path,
    use_options,
)
from millstream.processing.java import Java

JAVA = Java(Path("/opt/java/bin/java"), 17)


def archive_in(directory: Path) -> Path:
    archive = directory / "spark.jsa"
    archive.write_bytes(b"classes")
    size_path(archive).write_text("7")
    return archive


def test_the_archive_is_in_the_users_cache() -> None:
    assert archive_path(JAVA, {"HOME": "/home/ada"}).parent == Path("/home/ada/.cache/millstream")
    chosen = archive_path(JAVA, {"HOME": "/home/ada", "XDG_CACHE_HOME": "/var/cache"})
    assert chosen.parent == Path("/var/cache/millstream")


def test_every_java_has_an_archive_of_its_own() -> None:
    other = Java(Path("/opt/other/bin/java"), 17)
    newer = Java(JAVA.command, 21)
    paths = {archive_path(java, {"HOME": "/home/ada"}) for java in (JAVA, other, newer)}
    assert len(paths) == 3


def test_without_an_archive_java_is_told_nothing(tmp_path: Path) -> None:
    assert use_options(tmp_path / "spark.jsa") == ""


def test_an_archive_that_is_there_is_used(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    assert f"-XX:SharedArchiveFile={archive} " in use_options(archive)
    assert f"-XX:ArchiveClassesAtExit={archive} " in make_options(archive)


def test_a_path_with_a_space_would_be_two_options_and_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a cache").mkdir()
    assert use_options(archive_in(tmp_path / "a cache")) == ""


@pytest.mark.parametrize("size", ["6", "8", "", None])
def test_an_archive_of_another_size_than_was_written_is_not_used(
    tmp_path: Path, size: str | None
) -> None:
    """Java would map it, and end with a bus error."""
    archive = archive_in(tmp_path)
    size_path(archive).unlink()
    if size is not None:
        size_path(archive).write_text(size)
    assert use_options(archive) == ""
