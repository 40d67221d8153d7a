"""Something that works in a thread of its own until it is stopped, or something ends it."""

import logging
import threading
from abc import ABC, abstractmethod

from millstream.base.errors import MillstreamError

logger = logging.getLogger(__name__)


class OwnThread(ABC):
    """`_run` looks at `_stopping`, and raises what ends it before."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @abstractmethod
    def _run(self) -> None: ...

    def _start(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run_told, name=name, daemon=True)
        self._thread.start()

    def _run_told(self) -> None:
        """Nobody hears what a thread raises: it is kept for who waits."""
        try:
            self._run()
        except BaseException as error:
            self._failure = error
            name, is_odd = threading.current_thread().name, not isinstance(error, MillstreamError)
            logger.error("%s has ended: %s", name, error, exc_info=is_odd)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has ended; raises what ended it."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """What it has begun is done first."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
