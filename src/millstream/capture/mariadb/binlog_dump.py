"""Asks a server for its binlog after a set of GTIDs, as a replica does; hands over its packets."""

import struct
import uuid
from typing import Any, Final

from millstream.base.errors import MillstreamError
from millstream.capture.mariadb.connection import Address, connect, translated
from millstream.capture.mariadb.gtids import Gtids, MariadbGtids, MysqlGtids
from millstream.capture.mariadb.packets import Packets
from millstream.capture.source import SourceInterrupted, SourceLost

BINLOG_DUMP, BINLOG_DUMP_GTID = 0x12, 0x1E
# The server says that it lives whenever it had nothing to send for so long.
HEARTBEAT_S: Final = 5
OK, END, ERROR = 0x00, 0xFE, 0xFF
CANNOT_READ_BINLOG, SAME_SERVER_ID = 1236, 4052
# MariaDB: this reader knows all events of GTIDs.
CAPABILITY: Final = 4


class BinlogLost(SourceLost):
    """The server does not have the binlog that comes next."""

    def __init__(self, *, capture: str, position: str, message: str) -> None:
        super().__init__(
            f"the capture {capture} cannot go on after {position}: {message}. Changes since then "
            f"are not to be had from the binlog. `millstream capture reload {capture}` begins at "
            "the server's position of now, and loads all tables anew; with a longer "
            "binlog_expire_logs_seconds the server keeps its binlog for longer"
        )
        self.capture, self.position = capture, position


class SameServerId(SourceInterrupted):
    def __init__(self, *, capture: str, server_id: int) -> None:
        super().__init__(
            f"another replica of this server has the id {server_id} as the capture {capture} has: "
            "end it, or give this one another with ?server_id= in its URL"
        )


class BinlogDump:
    """A connection over which the server sends its binlog, and nothing else."""

    def __init__(self, address: Address, after: Gtids) -> None:
        self.address, self._after = address, after
        self._connection = connect(address)
        try:
            with translated(address.capture):
                self._ask(after)
        except BaseException:
            self.close()
            raise

    def _ask(self, after: Gtids) -> None:
        for name in ("@master_heartbeat_period", "@source_heartbeat_period"):  # MySQL's new word
            self._set(name, HEARTBEAT_S * 1_000_000_000)
        with self._connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum")
            cursor.execute("SET @source_binlog_checksum = @@GLOBAL.binlog_checksum")
            cursor.execute("SELECT @@GLOBAL.binlog_checksum")
            self.has_checksums = cursor.fetchall()[0][0] == "CRC32"
        # Both are private to the driver: it has no call for a command without one answer.
        sock: Any = self._connection._sock  # type: ignore[attr-defined]
        if isinstance(after, MariadbGtids):
            state = "" if str(after) == after.NOTHING else str(after)
            self._set("@mariadb_slave_capability", CAPABILITY)
            self._set("@slave_connect_state", state)
            self._set("@slave_gtid_strict_mode", 0)
            self._set("@slave_gtid_ignore_duplicates", 0)
            command = mariadb_dump(self.address.server_id)
        else:
            command = mysql_dump(self.address.server_id, after)
        sock.sendall(struct.pack("<I", len(command)) + command)  # a packet with the number 0
        self.packets = Packets(sock)

    def _set(self, name: str, value: object) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET {name} = %s", (value,))

    def refusal(self, packet: bytes) -> MillstreamError:
        """Of a packet that is no event: why the binlog ends here."""
        if packet[0] == END:
            return SourceInterrupted("the server ended its binlog: it may be stopping")
        code, message = int.from_bytes(packet[1:3], "little"), packet[9:].decode("utf-8", "replace")
        capture = self.address.capture
        if code == SAME_SERVER_ID or "same server_" in message:  # MySQL has no code of its own
            return SameServerId(capture=capture, server_id=self.address.server_id)
        if code != CANNOT_READ_BINLOG:
            return SourceInterrupted(f"the binlog for the capture {capture}: {code} {message}")
        return BinlogLost(capture=capture, position=str(self._after), message=message)

    def close(self) -> None:
        if self._connection.open:
            self._connection._force_close()  # type: ignore[attr-defined]  # it never answers again


def mariadb_dump(server_id: int) -> bytes:
    """From the place that @slave_connect_state says."""
    return struct.pack("<BIHI", BINLOG_DUMP, 4, 0, server_id)


def mysql_dump(server_id: int, after: MysqlGtids) -> bytes:
    had = mysql_gtids_bytes(after)
    return struct.pack("<BHIIQI", BINLOG_DUMP_GTID, 0, server_id, 0, 4, len(had)) + had


def mysql_gtids_bytes(gtids: MysqlGtids) -> bytes:
    """uint64 count; for each source its uuid, uint64 count, and ranges of two uint64."""
    parts = [struct.pack("<Q", len(gtids.ranges))]
    for source, ranges in sorted(gtids.ranges.items()):
        parts.append(uuid.UUID(source).bytes + struct.pack("<Q", len(ranges)))
        parts += [struct.pack("<QQ", start, end) for start, end in ranges]
    return b"".join(parts)
