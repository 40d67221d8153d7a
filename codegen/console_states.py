"""A shop of real jobs in their states, for pictures of the console: runs `states_shop.py`.

One job is run to where its topic ends and not again, so that it is stopped while the topic grows;
then all others run.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

from millstream.app import App
from millstream.commands.app_file import load_app
from millstream.embedded import Broker
from millstream.processing.jobs.job_status import read_status

SOURCE = Path(__file__).with_name("states_shop.py")
STOPPED = "orders_per_country"
RUN = ("orders_per_minute", "orders_in_euro", "receipts_by_mail", "warehouse")
COUNTRIES = ("AT", "DK", "FR", "IT", "NL", "SE")
ORDERS_A_ROUND, ROUND_SECONDS = 15, 0.25
END_SECONDS = 60.0
# Spark starts, every job does a batch, and the slow one falls behind.
STATES_SECONDS = 300.0


@contextlib.contextmanager
def states_shop() -> Iterator[str]:
    """Until it closes: the address of the console, when each job is in its state."""
    with contextlib.ExitStack() as open_things:
        name = open_things.enter_context(tempfile.TemporaryDirectory(prefix="millstream-"))
        folder = Path(name)
        data = folder / "shop.millstream"
        broker = open_things.enter_context(Broker(folder / "broker"))
        env = os.environ | {"MILLSTREAM_BROKERS": broker.bootstrap, "STATES_DATA": str(data)}
        os.environ.update(env)  # the file of the shop reads it
        file = folder / "shop.py"
        shutil.copy(SOURCE, file)
        app = open_things.enter_context(contextlib.closing(load_app(str(file))))
        open_things.enter_context(_orders(app))
        with _run((STOPPED,), env, file):
            _await_state(data, STOPPED, "running", has_batch=True)
        open_things.enter_context(_run(RUN, env, file))
        _await_state(data, RUN[0], "running", has_batch=True)
        _await_state(data, "receipts_by_mail", "failed")
        _await_state(data, "warehouse", "waiting")
        eventually(lambda: _is_slow(data), what="the slow job", within_s=STATES_SECONDS)
        yield open_things.enter_context(ServeProcess(file, env=env)).url


@contextlib.contextmanager
def _orders(app: App) -> Iterator[None]:
    stopping = threading.Event()

    def publish() -> None:
        number = 0
        while not stopping.wait(ROUND_SECONDS):
            at = datetime.now(UTC)
            rows = [
                {"order_id": one, "country": COUNTRIES[one % 6], "amount": one % 90 + 0.5, "at": at}
                for one in range(number, number + ORDERS_A_ROUND)
            ]
            app.publish("orders", rows)
            number += ORDERS_A_ROUND

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(END_SECONDS)


@contextlib.contextmanager
def _run(jobs: tuple[str, ...], env: Mapping[str, str], file: Path) -> Iterator[None]:
    only = [word for job in jobs for word in ("--only", job)]
    with file.with_name(f"run-{jobs[0]}.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "run", str(file), *only],
            env=dict(env),
            stdout=said,
            stderr=said,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(END_SECONDS)


def _await_state(data: Path, job: str, state: str, *, has_batch: bool = False) -> None:
    def is_there() -> bool:
        status = read_status(data / "jobs", job)
        if status is None or status.progress.state != state:
            return False
        return not has_batch or status.progress.batch is not None

    eventually(is_there, what=f"{job}: {state}", within_s=STATES_SECONDS)


def _is_slow(data: Path) -> bool:
    status = read_status(data / "jobs", "orders_in_euro")
    return status is not None and (status.progress.lag_ms_max or 0) > 60_000
