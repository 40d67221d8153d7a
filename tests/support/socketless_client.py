"""A client of a connection without a socket: what it writes and reads is bytes in memory.

client = SocketlessClient(served)
client.send(MetadataRequest(topics=[]), 12)
[answer] = client.answers()
"""

import asyncio
import time
from typing import Any

from millstream.broker.access.admission import Place
from millstream.broker.connection import Connection
from millstream.broker.wire import Buffer, Message, encode_request
from tests.support.served_node import ServedNode

WITHIN_S = 20.0


class FakeTransport(asyncio.Transport):
    """Keeps what is written; closing ends the connection a round later, as a real one does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        super().__init__({"peername": ("192.0.2.7", 5), "sockname": ("127.0.0.1", 9092)})
        self._loop, self._connection = loop, connection
        self.written = bytearray()
        self.is_closed = False
        self.is_paused = False
        self.keeps_open = False  # a client that never takes what was written

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Buffer) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if not self.keeps_open:
                self.abort()

    def abort(self) -> None:
        self._loop.call_soon(self._connection.connection_lost, None)


class SocketlessClient:
    def __init__(self, served: ServedNode, place: Place | None = None) -> None:
        self._served = served
        self.connection = Connection(served.node, place)
        self.transport = FakeTransport(served.loop, self.connection)
        self.connection.connection_made(self.transport)

    def send(self, request: Message, version: int, correlation_id: int = 1) -> None:
        chunks = encode_request(request, version, correlation_id=correlation_id, client_id="ada")
        self.send_bytes(b"".join(chunks))

    def send_frame(self, content: bytes) -> None:
        self.send_bytes(len(content).to_bytes(4, "big") + content)

    def send_bytes(self, data: bytes) -> None:
        async def deliver() -> None:
            rest = self.deliver(data)
            while rest and not self.transport.is_closed:  # as soon as it is read again
                await asyncio.sleep(0)
                rest = self.deliver(rest)

        self._served.run(deliver())

    def deliver(self, data: bytes) -> bytes:
        """Within the loop: what the connection takes at once; returns the rest."""
        while data and not self.transport.is_closed and not self.transport.is_paused:
            buffer = self.connection.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            del buffer
            data = data[count:]
            self.connection.buffer_updated(count)
        return data

    def until_answered(self, count: int) -> list[bytes]:
        """Let the loop run until so many answers have been written."""

        async def wait() -> None:
            deadline_s = time.monotonic() + WITHIN_S
            while len(self.answers()) < count:
                assert time.monotonic() < deadline_s, f"{len(self.answers())} of {count} answers"
                await asyncio.sleep(0)

        self._served.run(wait())
        return self.answers()

    def go(self) -> None:
        """The client closes its end, and the loop notices."""
        self.transport.close()
        self._served.turn()

    def answers(self) -> list[bytes]:
        data, found = bytes(self.transport.written), []
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found
