"""A broker inside the test's process, on a loop in a thread: for tests that look at its state, or
give it a disk of their own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from millstream.base.clock import system_clock
from millstream.base.disk import Disk
from millstream.broker.config import BrokerConfig
from millstream.broker.node import Node
from millstream.broker.server import BrokerServer

T = TypeVar("T")
WITHIN_S = 20.0


class BrokerThread:
    """A running BrokerServer; use it as a context manager."""

    def __init__(self, data_dir: Path, *, disk: Disk | None = None, **config: Any) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._config = BrokerConfig(port=0, **config)
        self._data_dir = data_dir
        self._disk = disk
        self._stopping: Future[bool] | None = None
        self.server: BrokerServer

    def __enter__(self) -> "BrokerThread":
        self._thread.start()
        self._await(self._start())
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.begin_stop().result(WITHIN_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _start(self) -> None:
        self.server = BrokerServer(
            self._data_dir, self._config, now_ms=system_clock, disk=self._disk
        )
        await self.server.start()

    def begin_stop(self) -> "Future[bool]":
        """Ask it to stop, once; the future has what `BrokerServer.stop` returns."""
        if self._stopping is None:
            self._stopping = asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop)
        return self._stopping

    @property
    def bootstrap(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    def ask(self, question: Callable[[Node], T]) -> T:
        """Look at the broker's state, on the loop that owns it."""

        async def answer() -> T:
            assert self.server.node is not None
            return question(self.server.node)

        return self._await(answer())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)
