"""What a job's processes are doing, for a test that waits in vain: the threads of all of them.

A Python that has called `dump_on_signal` and every JVM write their threads to standard error and
output when they are asked; where those go, the answer is found.
"""

import faulthandler
import os
import signal
import time
from pathlib import Path

ANSWER_SECONDS = 3.0


def dump_on_signal() -> None:
    """In a Python process that may be asked."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def ask_for_threads(group: int) -> None:
    """Ask every process of the group: its first one, a Python, and its JVMs."""
    os.kill(group, signal.SIGUSR1)
    for process in java_processes(group):
        os.kill(process, signal.SIGQUIT)
    time.sleep(ANSWER_SECONDS)


def java_processes(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            program = (entry / "exe").readlink().name
            if program == "java" and os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
        except OSError:  # it has ended, or is none of ours
            continue
    return found
