"""Packets of the client protocol, cut off a socket as fast as they come.

    size      uint24   a packet of 2^24 - 1 bytes goes on in the next one
    sequence  uint8
    payload

The driver reads two times for each packet; a binlog of small transactions is made of packets of
some dozen bytes.
"""

import select
import socket
import ssl
from typing import Final

from millstream.base.errors import Corrupt
from millstream.capture.source import SourceInterrupted

RECEIVE_BYTES: Final = 256 * 1024
WHOLE_BYTES: Final = (1 << 24) - 1
# The server's own limit of a packet is 1 GiB; an event has a header on top.
PACKET_BYTES_MAX: Final = (1 << 30) + 1024


class PacketTooLarge(Corrupt):
    def __init__(self, size: int) -> None:
        super().__init__(
            f"the server sends a packet of more than {size} bytes: {PACKET_BYTES_MAX=}"
        )


class Packets:
    """Owns the reading side of a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(True)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._data = b""
        self._at = 0

    def take(self) -> bytes | None:
        """The next packet, if it has come already."""
        at, data = self._at, self._data
        if len(data) - at < 4:
            return None
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        end = at + 4 + size
        if end > len(data):
            return None
        if size == WHOLE_BYTES:
            return self._take_parts()
        self._at = end
        return data[at + 4 : end]

    def _take_parts(self) -> bytes | None:
        parts, at = [], self._at
        while True:
            if len(self._data) - at < 4:
                return None
            size = int.from_bytes(self._data[at : at + 3], "little")
            if at + 4 + size > len(self._data):
                return None
            parts.append(self._data[at + 4 : at + 4 + size])
            at += 4 + size
            if size < WHOLE_BYTES:
                self._at = at
                return b"".join(parts)

    def receive(self, wait_s: float) -> bool:
        """Read what is there; False if nothing came within this time."""
        if not self._is_readable(wait_s):
            return False
        came = [self._received()]
        missing = self._missing(came[0])
        while missing > 0 and self._is_readable(0):  # a large packet: not one copy for each part
            came.append(self._received())
            missing -= len(came[-1])
        self._data = b"".join([self._data[self._at :], *came])
        self._at = 0
        if len(self._data) > PACKET_BYTES_MAX + RECEIVE_BYTES:
            raise PacketTooLarge(len(self._data))
        return True

    def _missing(self, came: bytes) -> int:
        start = self._data[self._at : self._at + 3]
        start += came[: 3 - len(start)]
        return int.from_bytes(start, "little") - (len(self._data) - self._at) - len(came)

    def _is_readable(self, wait_s: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._poll.poll(wait_s * 1000))

    def _received(self) -> bytes:
        try:
            came = self._socket.recv(RECEIVE_BYTES)
        except OSError as error:
            raise SourceInterrupted(f"the connection to the database broke: {error}") from error
        if not came:
            raise SourceInterrupted("the database ended the connection")
        return came
