"""The Python of Spark's workers on this machine: this one, by a script that starts them early and
keeps one of them quiet.

Workers that Spark starts one by one connect back before they import anything (early_worker.py).

For each query with transformWithState Spark starts a worker on the driver that sets the operator
up, and tells every step of it on standard output: the user would see that. The script drops the
standard output of that worker alone; what goes wrong is told by Spark, or on standard error.
"""

import contextlib
import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from millstream.processing.class_archive import cache_directory
from millstream.processing.log_files import WORKERS_VARIABLE

TALKATIVE = "pyspark.sql.streaming.transform_with_state_driver_worker"
DAEMON = "pyspark.daemon"
EARLY = Path(__file__).with_name("early_worker.py")
SCRIPT = """#!/bin/sh
# What workers say at length goes into a file of the app (log_files.py), if it has one.
if [ -n "{variable}" ] && [ -w "{variable}" ]; then exec 2>>"{variable}"; fi
# Spark's daemon is started as it is; its other workers connect back before they import.
# The worker {talkative} tells its steps; its errors stay.
case "$*" in
  "-m {daemon}"*) exec {python} "$@" ;;
  "-m {talkative}"*) shift; exec {python} {early} "$@" >/dev/null ;;
  "-m pyspark."*) shift; exec {python} {early} "$@" ;;
esac
exec {python} "$@"
"""


def quiet_python(environment: Mapping[str, str] | None = None) -> str:
    """A script in the user's cache; this Python itself where none can be kept, or run."""
    environment = os.environ if environment is None else environment
    text = SCRIPT.format(
        talkative=TALKATIVE,
        daemon=DAEMON,
        variable=f"${WORKERS_VARIABLE}",
        python=shlex.quote(sys.executable),
        early=shlex.quote(str(EARLY)),
    )
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = cache_directory(environment) / f"python-{mark}"
    if not path.exists():
        with contextlib.suppress(OSError):
            _write(path, text)
    return str(path) if os.access(path, os.X_OK) else sys.executable


def _write(path: Path, text: str) -> None:
    """It gets its name when it is whole: another process may be about to run it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(0o755)
    partial.replace(path)
