"""The embedded broker of an application, watched by `millstream up`: it comes back when it dies.

Clients wait meanwhile: it listens where it did, with all that was acknowledged.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from millstream.embedded import Broker, BrokerDidNotStart
from millstream.log.log_directory import owner_of

LOOK_SECONDS = 0.2
# In a row; one that held on for a while is forgotten.
RESTARTS_MAX = 10
RESTART_FORGOTTEN_SECONDS = 60.0
PAUSE_SECONDS = 1.0
# A run that was killed leaves a broker that is just closing its files.
FORMER_SECONDS_MAX = 20.0

Tell = Callable[[str], None]


def await_former(data: Path, *, tell: Tell, seconds: float = FORMER_SECONDS_MAX) -> None:
    """Until the broker of a run that was killed has let go of the data, or the time is up."""
    deadline, is_told = time.monotonic() + seconds, False
    while owner_of(data) and time.monotonic() < deadline:
        if not is_told:
            tell(f"{data} is in use: waiting for a broker that may just be ending")
            is_told = True
        time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def watched(broker: Broker | None, *, tell: Tell) -> Iterator[None]:
    """While this is open, a broker that ended unasked is started again."""
    if broker is None:
        yield
        return
    watch = BrokerWatch(broker, tell=tell)
    thread = threading.Thread(target=watch.run, name="broker watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join()


class BrokerWatch:
    def __init__(
        self,
        broker: Broker,
        *,
        tell: Tell,
        pause_seconds: float = PAUSE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker, self._tell, self._pause, self._now = broker, tell, pause_seconds, now
        self._stopping = threading.Event()
        self._restarts = 0
        self._started = now()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            if not self._broker.is_running and not self._restart():
                return

    def stop(self) -> None:
        self._stopping.set()

    def _restart(self) -> bool:
        """False when it has died too often to be worth another try."""
        if self._now() - self._started > RESTART_FORGOTTEN_SECONDS:
            self._restarts = 0
        if self._restarts == RESTARTS_MAX:
            self._tell(f"the broker ended {RESTARTS_MAX} times in a row: it stays down")
            return False
        self._restarts += 1
        self._tell("the broker ended unasked: starting it again")
        self._broker.kill()  # collects what is left of it
        try:
            self._broker.start()
        except BrokerDidNotStart as error:
            self._tell(f"{error}; again in {self._pause:g} s")
            self._stopping.wait(self._pause)
        else:
            self._tell(f"the broker is back on {self._broker.bootstrap}")
        self._started = self._now()
        return True
