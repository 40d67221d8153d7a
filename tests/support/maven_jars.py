"""Jars that a pom names, fetched once per checkout with Maven into `.cache/`, which git ignores.

The stamp file is written last and holds the hash of the pom, so that a download cut short, or an
edited pom, is fetched again; a file lock makes parallel runs wait for one another. Finds Java and
Maven, and installs them where it may. Does not run anything of the jars.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

JAVA_MAJOR_MIN = 17
CACHE = Path(__file__).parents[2] / ".cache"

# Kafka: 54 MB of jars and as much again of Maven's own plugins, over a slow line.
MAVEN_TIMEOUT_S = 900
APT_TIMEOUT_S = 600


class MissingToolError(RuntimeError):
    """A program that the jars need is not there; the message says what to install."""

    def __init__(self, *, program: str, install: str) -> None:
        super().__init__(f"{program} is needed to run Apache's jars: install {install}")
        self.program, self.install = program, install


class JarsUnavailableError(RuntimeError):
    """Maven ran and did not deliver the jars."""

    def __init__(self, *, name: str, exit_code: int, output: str) -> None:
        super().__init__(f"mvn ended with {exit_code} and no jars of {name}:\n{output}")
        self.exit_code, self.output = exit_code, output


@dataclass(frozen=True, slots=True, kw_only=True)
class MavenJars:
    """The jars of one pom. `sign` is a pattern of the one without which the rest is no use."""

    name: str
    pom: Path
    sign: str

    def fetched(self) -> Path:
        """The directory that holds them all; fetches them on the first call."""
        if not self._is_complete():
            self._fetch_once()
        return self._directory

    @property
    def _directory(self) -> Path:
        return CACHE / self.name

    @property
    def _stamp(self) -> Path:
        return self._directory / "complete"

    def _is_complete(self) -> bool:
        return self._stamp.exists() and self._stamp.read_text() == self._pom_hash()

    def _pom_hash(self) -> str:
        return hashlib.sha256(self.pom.read_bytes()).hexdigest()

    def _fetch_once(self) -> None:
        with _file_lock(CACHE / f"{self.name}.lock"):
            if self._is_complete():  # another process fetched them while this one waited
                return
            shutil.rmtree(self._directory, ignore_errors=True)
            self._fetch()
            self._stamp.write_text(self._pom_hash())

    def _fetch(self) -> None:
        command = [_maven_command(), "--quiet", "--batch-mode", "--file", str(self.pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={self._directory}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
        if done.returncode != 0 or not list(self._directory.glob(self.sign)):
            output = done.stdout + done.stderr
            raise JarsUnavailableError(name=self.name, exit_code=done.returncode, output=output)


@functools.cache
def java_command() -> str:
    """A Java that can run the jars, from JAVA_HOME or the PATH; installed if we may."""
    found = _java_found()
    if found is None:
        apt_install("default-jre-headless")
        found = _java_found()
    if found is None:
        raise MissingToolError(program=f"Java {JAVA_MAJOR_MIN}+", install="openjdk-17-jre-headless")
    return found


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _maven_command() -> str:
    java_command()  # Maven needs one too
    if shutil.which("mvn") is None:
        apt_install("maven")
    found = shutil.which("mvn")
    if found is None:
        raise MissingToolError(program="mvn", install="maven")
    return found


def _java_found() -> str | None:
    for candidate in _java_candidates():
        if _java_major(candidate) >= JAVA_MAJOR_MIN:
            return candidate
    return None


def _java_candidates() -> Iterator[str]:
    home = os.environ.get("JAVA_HOME")
    if home and (java := shutil.which("java", path=f"{home}/bin")):
        yield java
    if java := shutil.which("java"):
        yield java


def _java_major(java: str) -> int:
    """The major version, or 0 when it cannot be told."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    matched = re.search(r'version "(\d+)', done.stderr)
    return int(matched[1]) if matched else 0


def apt_install(package: str) -> None:
    """Install a Debian package when we are root on Debian; else leave it to the caller's error."""
    apt_get = shutil.which("apt-get")
    if apt_get is None or os.geteuid() != 0:
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", package]):
        subprocess.run(
            [apt_get, "--quiet", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=APT_TIMEOUT_S,
        )
