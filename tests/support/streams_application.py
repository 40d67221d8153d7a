"""CountByKey.java as a process: an application of Kafka Streams that counts words exactly once.

Compiled once for a run; each instance is a JVM of its own with a state directory of its own.
Judges nothing.
"""

import subprocess
import threading
from pathlib import Path

from tests.support.java_tools import QUIET_OPTIONS, SHORT_LIVED_OPTIONS
from tests.support.kafka_streams_jars import KAFKA_STREAMS
from tests.support.maven_jars import java_command

SOURCE = Path(__file__).with_name("CountByKey.java")
COMPILE_WITHIN_S = 120.0
STOP_WITHIN_S = 60.0
COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
# So that the transaction of an instance that was killed is soon aborted.
SETTINGS = ("transaction.timeout.ms=3000",)


def compiled(classes: Path) -> str:
    """The class path of the application, whose classes are put into the empty directory."""
    jars = ":".join(map(str, sorted(KAFKA_STREAMS.fetched().glob("*.jar"))))
    command = [java_command(), "-m", COMPILER, "-cp", jars, "-d", str(classes), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_WITHIN_S)
    return f"{classes}:{jars}"


class Instance:
    """`states` are what Kafka Streams said of itself, in order."""

    def __init__(self, class_path: str, *arguments: str) -> None:
        options = [*QUIET_OPTIONS, *SHORT_LIVED_OPTIONS]
        command = [java_command(), *options, "-cp", class_path, "CountByKey", *arguments, *SETTINGS]
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.lines.extend(lines)

    @property
    def states(self) -> list[str]:
        return [line.split()[1] for line in list(self.lines) if line.startswith("state ")]

    @property
    def is_ready(self) -> bool:
        assert self._process.poll() is None, self.output
        return self.states[-1:] == ["RUNNING"]

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()

    def stop(self) -> int:
        """In order, as an application that is closed; its exit code."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            return self._process.wait(STOP_WITHIN_S)
        finally:
            self.kill()
