"""The replication connection: messages of the log come in, confirmed positions go out.

libpq does the protocol; here it is never waited for but in `wait`. Knows nothing of what is in the
messages, but for the keepalives.
"""

import os
import select
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millstream.capture.definition import UnreadableUrl
from millstream.capture.postgres.json_forms import SESSION_OPTIONS
from millstream.capture.postgres.lsn import lsn_to_text
from millstream.capture.postgres.refusals import NOT_IN_STATE
from millstream.capture.postgres.wire import (
    EPOCH_MICROS,
    KEEPALIVE,
    WAL_DATA,
    WAL_DATA_HEADER_BYTES,
    BadMessage,
    read_keepalive,
    write_status,
)

CONNECT_TIMEOUT_S: Final = 10
# The server gives up on us after wal_sender_timeout, 60 s unless told otherwise.
STATUS_EVERY_S: Final = 5.0
# A server that nobody checked gets no password, and no hash that is as good as one: SCRAM proves
# it, Kerberos and peer need none. A URL that says `require_auth` itself goes before this.
PROOFS_ONLY: Final = "!password,!md5"
_COPY_ENDED: Final = -1
_NOTHING_NOW: Final = 0


class ReplicationError(Exception):
    """What the server said when it ended the stream."""

    def __init__(self, sqlstate: str | None, message: str) -> None:
        super().__init__(message)
        self.sqlstate, self.message = sqlstate, message


def conninfo_of(url: str, *, capture: str) -> str:
    """With settings on which the text of values depends; keepalives find a dead network."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise UnreadableUrl(capture=capture, problem=_problem_in_url(str(error))) from None
    options = " ".join(f"-c {name}={value}" for name, value in SESSION_OPTIONS.items())
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    if not _is_verified(given) and not os.environ.get("PGREQUIREAUTH"):
        defaults["require_auth"] = PROOFS_ONLY
    ours = {
        "client_encoding": "UTF8",
        "application_name": f"millstream capture {capture}",
        "options": f"{given.get('options') or ''} {options}".strip(),
    }
    return make_conninfo("", **{**defaults, **given, **ours})


def _is_verified(given: Mapping[str, Any]) -> bool:
    """Whether the certificate of the server is checked, with its name."""
    return given.get("sslmode") == "verify-full" or given.get("sslrootcert") == "system"


def _problem_in_url(message: str) -> str:
    """The library may repeat the URL, with its password: only names of options are passed on."""
    if message.startswith("invalid URI query parameter"):
        return message.strip()
    return "PostgreSQL's library does not understand it"


class ReplicationConnection:
    """One stream of one slot. `received`: the log before this place has come, all of it."""

    def __init__(self, conninfo: str) -> None:
        conninfo = make_conninfo(conninfo, replication="database")
        self._connection = psycopg.connect(conninfo, autocommit=True)
        self._pg = self._connection.pgconn
        self._pg.notice_handler = self._noticed
        self._warning: ReplicationError | None = None
        self.received = self._flushed = 0
        self.message_lsn = b""  # where in the log the last message is, as it was sent
        self._told_at = time.monotonic()

    @property
    def server_version(self) -> int:
        return self._pg.server_version

    def start(self, slot: str, after: int, options: Mapping[str, str]) -> None:
        given = ", ".join(f"{name} '{value}'" for name, value in options.items())
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_to_text(after)} ({given})'
        result = self._pg.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _error_of(result)
        self._pg.nonblocking = 1
        self.received = self._flushed = after

    def receive(self) -> bytes | None:
        """The next message of the log; None when there is none now. Keepalives end here."""
        while (message := self._next()) is not None:
            if message[0] == WAL_DATA:
                self.message_lsn = message[1:9]
                return message[WAL_DATA_HEADER_BYTES:]
            if message[0] != KEEPALIVE:
                raise BadMessage("a message that is not of replication", message)
            keepalive = read_keepalive(message)
            self.received = max(self.received, keepalive.end_lsn)
            if keepalive.must_reply:
                self.tell()
        return None

    def _next(self) -> bytes | None:
        """libpq looks into its own buffer first, and into the socket only when it is told to."""
        size, data = self._pg.get_copy_data(1)
        if size == _NOTHING_NOW:
            self._pg.consume_input()
            size, data = self._pg.get_copy_data(1)
        if self._warning is not None:
            raise self._warning
        if size == _COPY_ENDED:
            raise self._ending()
        return None if size == _NOTHING_NOW else bytes(data)

    def wait(self, seconds: float) -> None:
        """Until something comes, or the time is up."""
        waiting = select.poll()
        waiting.register(self._pg.socket, select.POLLIN)
        waiting.poll(seconds * 1000)

    def confirm(self, lsn: int) -> None:
        if lsn > self._flushed:
            self._flushed = lsn
            self.tell()

    def tell(self, *, must_reply: bool = False) -> None:
        """Where we are; the server may forget what is confirmed."""
        now_micros = time.time_ns() // 1000 - EPOCH_MICROS
        status = write_status(
            received=max(self.received, self._flushed),
            flushed=self._flushed,
            now_micros=now_micros,
            must_reply=must_reply,
        )
        self._pg.put_copy_data(status)
        self._pg.flush()
        self._told_at = time.monotonic()

    def tell_if_due(self) -> None:
        if time.monotonic() - self._told_at > STATUS_EVERY_S:
            self.tell()

    def close(self) -> None:
        self._connection.close()

    def _noticed(self, result: pq.abc.PGresult) -> None:
        """From version 18 on, a publication that is missing is a warning; and its changes too."""
        warning = _error_of(result)
        if warning.sqlstate == NOT_IN_STATE:
            self._warning = warning

    def _ending(self) -> ReplicationError:
        result = self._pg.get_result()
        if result is None or result.status == pq.ExecStatus.COMMAND_OK:
            return ReplicationError(None, "the server ended the stream")
        return _error_of(result)


def _error_of(result: pq.abc.PGresult) -> ReplicationError:
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    return ReplicationError(state.decode() if state else None, result.get_error_message())
