"""A way between a client and a broker that can be cut: what is asked arrives, the answer does not.

It listens on loopback and passes bytes both ways. The broker must advertise the proxy's address,
or clients go past it. It knows nothing of what it carries.
"""

import contextlib
import socket
import threading

CHUNK_BYTES = 1 << 16


class CutProxy:
    """While `is_closed` it refuses connections."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.target: tuple[str, int] | None = None
        self._silenced: set[socket.socket] = set()
        self.is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def drop_answers(self) -> None:
        """On the connections there are now, nothing comes back any more; requests still arrive."""
        self._silenced = {broker for _, broker in self._pairs}

    def cut(self) -> None:
        """End every connection, on both sides."""
        pairs, self._pairs = self._pairs, []
        for end in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_closed = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        if self.is_closed or self.target is None:
            client.close()
            return
        broker = socket.create_connection(self.target)
        self._pairs.append((client, broker))
        for source, sink in ((client, broker), (broker, client)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(CHUNK_BYTES):
                if source not in self._silenced:
                    sink.sendall(data)
