"""The Python of Spark's workers: this one, with the one worker silenced that talks too much."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.processing.log_files import WORKERS_VARIABLE
from millstream.processing.worker_python import TALKATIVE, quiet_python

# A module of Spark's name, and none of it.
TELLS = "import sys; print('a step'); print('an error', file=sys.stderr); print(sys.executable)"


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache of ada")}


def run(python: str, *arguments: str, at: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([python, *arguments], capture_output=True, text=True, cwd=at)


def test_the_worker_that_tells_its_steps_is_heard_only_when_it_fails(
    cache: dict[str, str], tmp_path: Path
) -> None:
    for name in (TALKATIVE, "pyspark.daemon"):
        module = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(TELLS)
    for package in ("pyspark", "pyspark/sql", "pyspark/sql/streaming"):
        (tmp_path / package / "__init__.py").touch()
    python = quiet_python(cache)
    quiet = run(python, "-m", TALKATIVE, at=tmp_path)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "an error\n")
    heard = run(python, "-m", "pyspark.daemon", "a b", at=tmp_path)
    assert (heard.stdout, heard.stderr) == (f"a step\n{sys.executable}\n", "an error\n")


def test_what_workers_say_at_length_goes_into_the_file_of_the_app(
    cache: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "workers.log"
    log.write_text("before\n")
    says = [quiet_python(cache), "-c", "import sys; print('an error', file=sys.stderr)"]
    for file, heard in ((log, ""), (tmp_path / "none", "an error\n")):
        variables = {**os.environ, WORKERS_VARIABLE: str(file)}
        done = subprocess.run(says, capture_output=True, text=True, env=variables)
        assert (done.returncode, done.stderr) == (0, heard)
    assert log.read_text() == "before\nan error\n"


# Like a worker: imports for a while, then connects, and writes what Spark waits for behind it.
LATE = """
import os, time
time.sleep({seconds})
from pyspark.util import local_connect_and_auth
port, secret = os.environ["PYTHON_WORKER_FACTORY_PORT"], os.environ["PYTHON_WORKER_FACTORY_SECRET"]
file, _ = local_connect_and_auth(int(port), secret)
file.write(b"pid"); file.flush()
"""


def test_a_worker_is_connected_and_known_before_its_imports_are_done(
    cache: dict[str, str], tmp_path: Path
) -> None:
    """Spark waits ten seconds for each, and no setting changes that."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").touch()
    # By pyspark's name and with pyspark's own protocol, quick to import.
    (package / "util.py").write_text(
        "def local_connect_and_auth(port, secret): raise RuntimeError('it connects too late')"
    )
    (package / "late_worker.py").write_text(LATE.format(seconds=1.5))
    with socket.create_server(("127.0.0.1", 0)) as spark:
        spark.settimeout(20)
        variables = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(spark.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "sesame",
        }
        command = [quiet_python(cache), "-m", "pyspark.late_worker"]
        with subprocess.Popen(command, cwd=tmp_path, env=variables) as worker:
            connection, _ = spark.accept()
            with connection:
                connection.settimeout(20)
                assert connection.recv(100) == (6).to_bytes(4, "big") + b"sesame"
                connection.sendall((2).to_bytes(4, "big") + b"ok")
                connection.setblocking(False)
                with pytest.raises(BlockingIOError):  # it still imports
                    connection.recv(100)
                connection.settimeout(20)
                assert connection.recv(100) == b"pid"
            assert worker.wait(20) == 0


def test_the_script_is_written_once(cache: dict[str, str]) -> None:
    first = Path(quiet_python(cache))
    written = first.stat().st_mtime_ns
    assert quiet_python(cache) == str(first)
    assert first.stat().st_mtime_ns == written
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_without_a_place_for_the_script_workers_run_this_python(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert quiet_python({"XDG_CACHE_HOME": str(tmp_path / "file")}) == sys.executable
