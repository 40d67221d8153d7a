"""One connection and its quotas: what it is charged, and until when it is not heard.

Says when the connection must not be read; `connection.py` does not read it then.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from millstream.base.clock import Clock
from millstream.broker.access.client_quotas import ClientQuotas, client_of
from millstream.broker.security.throttle import Mute
from millstream.broker.wire import RequestHeader


class ConnectionThrottle:
    """Owned by its connection. `when_heard` is called when a time of silence is over."""

    def __init__(
        self, quotas: ClientQuotas, *, now_ms: Clock, when_heard: Callable[[], None]
    ) -> None:
        self._quotas = quotas
        self._now_ms = now_ms
        self._when_heard = when_heard
        self._mute = Mute()
        self._timer: asyncio.TimerHandle | None = None
        self.is_muted = False

    def close(self) -> None:
        """Nobody listens any more."""
        if self._timer is not None:
            self._timer.cancel()

    def bound_fetch(self, request: Any, header: RequestHeader, principal: str) -> None:
        self._quotas.bound_fetch(request, client_of(principal, header.client_id))

    def charge_request(
        self, header: RequestHeader, principal: str, *, size_bytes: int, work_s: float
    ) -> int:
        """If it was too much: for how many milliseconds nothing more is heard."""
        client = client_of(principal, header.client_id)
        return self._keep_still(
            self._quotas.charge_request(
                header.api_key, client, size_bytes=size_bytes, work_ms=work_s * 1000
            )
        )

    def charge_fetched(
        self, header: RequestHeader, principal: str, *, size_bytes: int, delay_ms: int
    ) -> int:
        """The same for an answer with records, whose request cost `delay_ms` already."""
        client = client_of(principal, header.client_id)
        return self._keep_still(
            self._quotas.charge_fetched(
                header.api_key, client, size_bytes=size_bytes, delay_ms=delay_ms
            )
        )

    def _keep_still(self, delay_ms: int) -> int:
        if delay_ms:
            self._mute.extend(delay_ms, now_ms=self._now_ms())
            if not self.is_muted:
                self.is_muted = True
                self._wait()
        return delay_ms

    def _wait(self) -> None:
        """A delay may become longer meanwhile, and two clocks do not agree on its end."""
        remaining_ms = self._mute.remaining_ms(now_ms=self._now_ms())
        if remaining_ms:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(remaining_ms / 1000, self._wait)
            return
        self.is_muted = False
        self._when_heard()
