"""A broker that stops for a while, and the console that goes on asking."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.embedded import Broker

# librdkafka's timeouts come after 15 s; twice, for it tries again.
STALL_SECONDS = 35.0
STALLS = 2
BACK_SECONDS_MAX = 5.0  # an error is kept for 2 s


def said_after(lines: list[str], since: float) -> dict[str, list[str]]:
    """By question: what was said from then on."""
    found: dict[str, list[str]] = {}
    for line in lines:
        at, what, said = line.split()
        if float(at) >= since:
            found.setdefault(what, []).append(said)
    return found


@pytest.mark.full
@pytest.mark.timeout(240)
def test_stalls_end_no_server_and_the_groups_are_back_at_once(tmp_path: Path) -> None:
    output = tmp_path / "said"
    with Broker(tmp_path / "broker") as broker, output.open("w") as said:
        command = [sys.executable, "-m", "tests.faults.group_asker", broker.bootstrap]
        asker = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            time.sleep(5)
            for _ in range(STALLS):
                os.kill(broker.pid, signal.SIGSTOP)
                try:
                    time.sleep(STALL_SECONDS)
                finally:
                    os.kill(broker.pid, signal.SIGCONT)
                back = time.monotonic() + BACK_SECONDS_MAX
                time.sleep(BACK_SECONDS_MAX + 5)
                assert asker.poll() is None, output.read_text()[-2000:]
                answers = said_after(output.read_text().splitlines()[:-1], back)
                assert len(answers) == 5
                assert {one for said in answers.values() for one in said} == {"ok"}
        finally:
            asker.kill()
            asker.wait()
