"""The Spark session of an app: started when it is first needed, stopped only if it was not there.

A program or a test may have a session already; Spark has one per process, and it is used.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millstream.processing.log_files import LogFiles
from millstream.processing.scratch import is_fit, make_scratch
from millstream.processing.session import is_local, open_session


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Signals that ask for the end are heard when the block is done, some seconds later: Spark in
    the midst of its start, or of its end, would leave a Java behind, or a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number)]
    before = {
        number: signal.signal(number, lambda *asked: heard.append(asked)) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first, _ in heard[:1]:
            signal.raise_signal(signal.Signals(first))


class AppSession:
    """Open until it is closed. Of two apps in one process, the first one's settings hold."""

    def __init__(
        self,
        app: str,
        *,
        master: str | None,
        settings: Mapping[str, str],
        quick_start: bool,
        log_level: str,
        scratch: Path,
        logs: LogFiles | None = None,
    ) -> None:
        """`scratch`: where it makes the directory for what Spark puts aside."""
        # It would write what a function raised to stderr, as JSON: the job says it itself.
        PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
        # Not the active session: that is one of this thread.
        self._is_ours = SparkContext._active_spark_context is None
        is_used = self._is_ours and is_local(master or "local") and is_fit(scratch)
        with contextlib.ExitStack() as ending, interrupts_later():
            made = (
                ending.enter_context(contextlib.closing(make_scratch(scratch))) if is_used else None
            )
            self.session: SparkSession = open_session(
                app,
                master=master,
                settings=settings,
                quick_start=quick_start,
                log_level=log_level,
                scratch=None if made is None else made.path,
                logs=logs,
            )
            self._ending = ending.pop_all()

    def close(self) -> None:
        """Also of a Java that has ended before us: who ends a whole group of processes ends it."""
        if self._is_ours:
            with interrupts_later(), contextlib.suppress(Py4JError, OSError):
                self.session.stop()
        self._ending.close()
