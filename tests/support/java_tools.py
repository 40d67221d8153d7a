"""Runs the command line tools of Apache Kafka, one JVM each, and returns what they said.

A tool is a class of the jars in kafka_jars.py. Its diagnostics are kept to warnings on standard
error, so that standard output is the tool's answer alone. Does not judge the exit code: the
caller does, or asks for `ToolRun.checked()`.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.support.kafka_jars import java_command, kafka_classpath

TOOLS = "org.apache.kafka.tools"
TOOL_TIMEOUT_S = 60.0

# slf4j-simple is the only logger on the class path; warnings matter, the rest is chatter.
QUIET_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.logFile=System.err",
)
# A tool lives for a second: one compiler tier and one collector thread start fastest.
SHORT_LIVED_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


class ToolFailedError(AssertionError):
    """A tool that had to succeed did not; the message is all that it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """What one run of a tool left behind."""

    command: str
    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def checked(self) -> "ToolRun":
        if self.exit_code != 0:
            raise ToolFailedError(
                f"{self.command} ended with {self.exit_code}\n{self.stdout}\n{self.stderr}"
            )
        return self


def java_class_command(
    class_name: str, *arguments: str, jvm_options: Sequence[str] = SHORT_LIVED_OPTIONS
) -> list[str]:
    """The words that start a class of Kafka's jars in a quiet JVM."""
    options = [*QUIET_OPTIONS, *jvm_options]
    return [java_command(), *options, "-cp", kafka_classpath(), class_name, *arguments]


def run_class(
    class_name: str, *arguments: str, stdin: str = "", timeout_s: float = TOOL_TIMEOUT_S
) -> ToolRun:
    """Run a class by its full name, or a source file by its path.

    `subprocess.TimeoutExpired` when it takes too long.
    """
    done = subprocess.run(
        java_class_command(class_name, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return ToolRun(
        command=f"{class_name} {' '.join(arguments)}",
        exit_code=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
    )


def require_compiler() -> None:
    """What runs a Java source file is part of a JDK, not of every Java. CI must have it."""
    done = subprocess.run([java_command(), "--list-modules"], capture_output=True, text=True)
    if "jdk.compiler@" not in done.stdout:
        assert "CI" not in os.environ, "this Java cannot compile: install a JDK"
        pytest.skip("this Java cannot compile: install a JDK, such as openjdk-17-jdk-headless")


def run_tool(
    tool: str,
    *arguments: str,
    bootstrap: str,
    stdin: str = "",
    timeout_s: float = TOOL_TIMEOUT_S,
) -> ToolRun:
    """Run `org.apache.kafka.tools.<tool>` against a broker."""
    return run_class(
        f"{TOOLS}.{tool}",
        "--bootstrap-server",
        bootstrap,
        *arguments,
        stdin=stdin,
        timeout_s=timeout_s,
    )
