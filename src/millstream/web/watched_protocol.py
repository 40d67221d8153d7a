"""uvicorn's HTTP/1.1 over h11, with an end to every wait for a client.

    head     its first byte, or the connection, until it is whole    `head_seconds`
    body     one that nobody reads any more                          `head_seconds`
    idle     between two requests                                    uvicorn's keep-alive
    writes   what the client does not take                           WRITE_STALL_SECONDS

A body that is read has the deadline of its reader (`serving.whole_body`, `guard`). uvicorn itself
waits for a head for as long as a client likes, and forgets its keep-alive with the first byte.
"""

import asyncio
import contextlib
import fcntl
import logging
import sys
import termios
import time

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from millstream.base.rare_lines import RareLines
from millstream.web.connections import PLACE, Place
from millstream.web.guard import EVERY_ANSWER
from millstream.web.problems import PROBLEM_JSON, Problem

# For as long nothing at all was taken of what is to be sent; a slow reader takes some.
WRITE_STALL_SECONDS = 60.0
# uvicorn warns of each request that it cannot read: anyone may send them.
logging.getLogger("uvicorn.error").addFilter(RareLines(time.monotonic))


class WatchedProtocol(H11Protocol):
    """`place` is this connection's, until it is lost; the guard starts it, in `scope["state"]`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        *,
        place: Place,
        head_seconds: float,
    ) -> None:
        super().__init__(config, server_state, {PLACE: place})
        self._place, self._head_seconds = place, head_seconds
        self._wait = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        super().connection_made(transport)
        self._place.end = transport.abort
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._place.leave()
        for timer in (self._deadline, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        self._place.rest()
        super().on_response_complete()
        self._follow()
        if self.transport.is_closing():
            self._watch_writes()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_writes()

    def send_400_response(self, msg: str) -> None:
        """As every answer of ours. Where one was given already there is nothing more to say."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = Problem("bad-request", "this is not HTTP/1.1, or its head is too long").to_json()
        headers = EVERY_ANSWER | {
            "Content-Type": PROBLEM_JSON,
            "Content-Length": f"{len(body)}",
            "Connection": "close",
        }
        answer = h11.Response(status_code=400, headers=[*headers.items()], reason=b"Bad Request")
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._watch_writes()

    # --- waits ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """A deadline is of one wait: more bytes do not move it."""
        wait = self._waits_for()
        if wait == self._wait:
            return
        self._wait = wait
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if wait:
            self._deadline = self.loop.call_later(self._head_seconds, self.transport.abort)

    def _waits_for(self) -> str:
        if self.cycle is not None and not self.cycle.response_complete:
            return ""
        if self.conn.their_state is h11.SEND_BODY:
            return "rest of a body"
        is_idle = self.cycle is not None and not self.conn.trailing_data[0]
        return "" if is_idle else "head"

    # --- writes ---------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Much was taken. While it was paused nothing was added, so that less is left each time."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self.transport.is_closing():
            self._watch_writes()

    def _watch_writes(self, unsent: int | None = None) -> None:
        """Looks again as long as something is to be sent, and some of it was."""
        if self._stall is not None and unsent is None:
            return
        if self.transport.get_write_buffer_size() == 0:
            self._stall = None
            return
        left = self._unsent()
        if unsent is not None and left >= unsent:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(WRITE_STALL_SECONDS, self._watch_writes, left)

    def _unsent(self) -> int:
        """With what the system holds: it takes more of us only when a good part of that is gone."""
        held = bytes(4)
        with contextlib.suppress(OSError):  # no system but Linux need know it
            held = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, held)
        return self.transport.get_write_buffer_size() + int.from_bytes(held, sys.byteorder)
