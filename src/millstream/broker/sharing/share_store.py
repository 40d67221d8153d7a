"""The way of share groups' state to disk: one record per partition and sync, for all who wait.

While a sync runs, what members acknowledge adds up in memory; when it is back, one batch holds
all of it. So under load a sync serves every member, and an acknowledgement costs no record of its
own.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from millstream.base.clock import Clock
from millstream.base.disk import DiskFull
from millstream.base.errors import MillstreamError
from millstream.broker.sharing.served_share import ServedShare
from millstream.broker.sharing.share_state_log import ShareStateLog

Stored = asyncio.Future[None]


class ShareStore:
    """Owned by the broker's loop. At most one batch is under way."""

    def __init__(self, log: ShareStateLog, *, now_ms: Clock) -> None:
        self._log = log
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._changed: dict[ServedShare, None] = {}
        self._next: Stored | None = None
        self._is_under_way = False
        self._is_closed = False

    def close(self) -> None:
        """Nothing more is written. What waited for an answer has it by now."""
        self._is_closed = True

    def store(self, share: ServedShare) -> Stored:
        """Done when all that the share has decided so far is durable; or failed.

        Many wait for the same one: whoever may be cancelled shields it.
        """
        self._changed[share] = None
        if self._next is None:
            self._next = self._loop.create_future()
            self._next.add_done_callback(_hear)
            if not self._is_under_way:
                self._loop.call_soon(self._write)
        return self._next

    def _write(self) -> None:
        waiting, self._next = self._next, None
        changed, self._changed = self._changed, {}
        if waiting is None or self._is_closed:
            return
        now_ms = self._now_ms()
        found = [share.next_record(now_ms=now_ms) for share in changed]
        records = [record for record in found if record is not None]
        if not records:
            waiting.set_result(None)
            return
        try:
            stored = self._log.put(records, now_ms=now_ms)
        except MillstreamError as error:
            _fail(changed, waiting, error)
            return
        self._is_under_way = True
        stored.add_done_callback(partial(self._written, changed, waiting))

    def _written(self, changed: Iterable[ServedShare], waiting: Stored, stored: Stored) -> None:
        self._is_under_way = False
        error = stored.exception()
        if error is None:
            for share in changed:
                share.is_starting = False
            waiting.set_result(None)
        else:
            _fail(changed, waiting, error)
        self._write()

    def rewrite_if_worth_it(self, shares: Iterable[ServedShare]) -> None:
        """Drop history. A full disk only delays it.

        What a failure may have left undone is repaired before anything else is answered.
        """
        if not self._log.must_rewrite:
            return
        shares, now_ms = [*shares], self._now_ms()
        try:
            self._log.rewrite([share.snapshot(now_ms=now_ms) for share in shares], now_ms=now_ms)
        except MillstreamError as error:
            for share in shares:
                share.must_repair = True
            if not isinstance(error, DiskFull):
                raise


def _fail(changed: Iterable[ServedShare], waiting: Stored, error: BaseException) -> None:
    for share in changed:
        share.must_repair = True
    waiting.set_exception(error)


def _hear(stored: Stored) -> None:
    """Nobody may wait for it, as when a lock ran out: the next one who does hears of it."""
    if not stored.cancelled():
        stored.exception()
