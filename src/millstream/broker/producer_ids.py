"""Producer ids: never given twice, not even after a crash.

They are taken from blocks whose end is durable before the first id of the block is given out, so
one sync serves a thousand producers.
"""

import asyncio

from millstream.base.clock import Clock
from millstream.broker.durable_state import DurableState

BLOCK_IDS = 1_000
KEY = b"producer-ids/next"


class ProducerIds:
    def __init__(self, state: DurableState, *, now_ms: Clock) -> None:
        self._state = state
        self._now_ms = now_ms
        self._next = int(dict(state).get(KEY, b"0"))
        self._end = self._next
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        async with self._lock:
            if self._next == self._end:
                end = self._end + BLOCK_IDS
                await self._state.put([(KEY, str(end).encode())], now_ms=self._now_ms())
                self._end = end
            self._next += 1
            return self._next - 1
