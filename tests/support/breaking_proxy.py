"""A way to a server that breaks after so many requests: before the next one arrives, or after it.

It listens on loopback and passes bytes both ways; what the client sends at once is one request.
Until it is armed, and after it broke, it only passes on.
"""

import contextlib
import socket
import threading
from typing import Literal

CHUNK_BYTES = 1 << 20

When = Literal["before", "after"]


class BreakingProxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._left: int | None = None
        self._when: When = "before"
        self._has_broken = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def arm(self, *, requests: int, when: When) -> None:
        """Let so many requests pass, and break with the next one."""
        self._has_broken, self._when, self._left = False, when, requests

    def disarm(self) -> bool:
        """Whether it broke."""
        self._left = None
        return self._has_broken

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target)
        except OSError:  # the server is away: so is the way to it
            client.close()
            return
        threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
        threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while data := client.recv(CHUNK_BYTES):
                is_last = self._is_last()
                if is_last:
                    client.shutdown(socket.SHUT_RDWR)
                if not is_last or self._when == "after":
                    server.sendall(data)
                if is_last:
                    break
            server.shutdown(socket.SHUT_WR)

    def _is_last(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        if self._left < 0:
            self._left, self._has_broken = None, True
            return True
        return False

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK_BYTES):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
