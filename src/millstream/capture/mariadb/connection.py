"""Connections to a MariaDB or MySQL server, of a URL; the driver's errors in our words.

mariadb://user:password@host:3306/database?ssl_ca=/path&server_id=1001
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from millstream.base.errors import MillstreamError, Rejected
from millstream.capture.mariadb.logging_in import REFUSED_HERE, GuardedConnection, plugins_for
from millstream.capture.source import SourceInterrupted, SourceLost

PORT: Final = 3306
CONNECT_WITHIN_S: Final = 10
READ_WITHIN_S: Final = 600  # of an answer: a chunk of a large table may take its time
SSL_OPTIONS: Final = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_identity", "ssl_verify_cert")
# Ids of replicas: above those that people give to servers, and never 0.
SERVER_ID_BASE: Final = 1 << 30
SERVER_ID_END: Final = 1 << 32

DATABASE_REFUSED: Final = 1044
LOGIN_REFUSED: Final = frozenset({1045, 1130, 1251, 1698})
NO_SUCH_DATABASE, NO_SUCH_TABLE, TABLE_CHANGED = 1049, 1146, 1412
# Errors of a statement that the same statement would get again.
REFUSED: Final = frozenset(
    {NO_SUCH_DATABASE, 1054, 1064, 1142, 1143, NO_SUCH_TABLE, 1193, 1227, 1419}
)


class BadUrl(Rejected):
    """A URL that does not say where the database is."""


class LoginRefused(SourceInterrupted):
    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(
            f"the server refuses the login of the capture {capture}: {message}. Is the "
            "password right, or have the credentials changed? A capture that runs tries again; "
            "with new ones, start it again"
        )


class UnsafeLogin(Rejected):
    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(f"the capture {capture} did not log in to its database: {message}")
        self.capture = capture


class DatabaseRefused(SourceInterrupted):
    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(
            f"the server does not let the capture {capture} into its database: {message}. "
            "GRANT SELECT ON that database to that user, then `millstream capture check` goes on"
        )


class StatementRefused(SourceLost):
    """A statement that this login may not run, or that this server does not know."""

    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(
            f"the server refuses what the capture {capture} asks: {message}. "
            "`millstream capture check` says what is missing"
        )


class TableChanged(SourceInterrupted):
    """The table was altered after the snapshot that was to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    capture: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    server_id: int
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of_url(cls, url: str, capture: str) -> "Address":
        given = urlsplit(url)
        database = unquote(given.path.strip("/"))
        if not database:
            raise BadUrl(f"the URL of the capture {capture} names no database: .../DATABASE")
        query = dict(parse_qsl(given.query))
        own_id = SERVER_ID_BASE + zlib.crc32(capture.encode()) % SERVER_ID_BASE
        try:
            port, server_id = given.port or PORT, int(query.pop("server_id", own_id))
        except ValueError:
            port = server_id = 0
        if not port or not 0 < server_id < SERVER_ID_END:
            raise BadUrl(f"the URL of the capture {capture}: its port or server_id is none")
        return cls(
            capture=capture,
            host=given.hostname or "127.0.0.1",
            port=port,
            user=unquote(given.username or ""),
            password=unquote(given.password or ""),
            database=database,
            server_id=server_id,
            options=_options(query, capture),
        )


def _options(query: dict[str, str], capture: str) -> dict[str, Any]:
    unknown = set(query) - {*SSL_OPTIONS, "unix_socket"}
    if unknown:
        raise BadUrl(
            f"the URL of the capture {capture} has {', '.join(sorted(unknown))}: known are "
            f"server_id, unix_socket, {', '.join(SSL_OPTIONS)}"
        )
    is_flag = ("ssl_verify_identity", "ssl_verify_cert")
    return {
        name: value.lower() in ("1", "true", "yes") if name in is_flag else value
        for name, value in query.items()
    }


def connect(address: Address) -> "pymysql.Connection[Any]":
    """A session in UTC, in which texts are UTF-8 and nothing is made up of what is stored.

    A database that was dropped is no reason to refuse: the binlog tells that it was.
    """
    with translated(address.capture):
        try:
            return _connect(address, address.database)
        except pymysql.err.OperationalError as error:
            if error.args[0] != NO_SUCH_DATABASE:
                raise
            return _connect(address, None)


def _connect(address: Address, database: str | None) -> "pymysql.Connection[Any]":
    return GuardedConnection(
        auth_plugin_map=plugins_for(address.host, address.options),
        local_infile=False,
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_WITHIN_S,
        read_timeout=READ_WITHIN_S,
        init_command="SET time_zone = '+00:00', sql_mode = '', SESSION wait_timeout = 28800",
        program_name=f"millstream capture {address.capture}",
        **address.options,
    )


@contextmanager
def translated(capture: str) -> Iterator[None]:
    try:
        yield
    except pymysql.err.Error as error:
        raise refusal(capture, error) from error
    except OSError as error:
        raise SourceInterrupted(
            f"the connection of the capture {capture} to its database broke: {error}"
        ) from error


def refusal(capture: str, error: pymysql.err.Error) -> MillstreamError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    message = " ".join(str(part) for part in error.args[1:]) or str(error)
    if code == DATABASE_REFUSED:
        return DatabaseRefused(capture=capture, message=message)
    if code in LOGIN_REFUSED:
        return LoginRefused(capture=capture, message=message)
    if code == REFUSED_HERE:
        return UnsafeLogin(capture=capture, message=message)
    if code in (NO_SUCH_TABLE, TABLE_CHANGED):
        return TableChanged(f"the capture {capture} cannot read a table now: {message}")
    if code in REFUSED:
        return StatementRefused(capture=capture, message=message)
    return SourceInterrupted(f"the database of the capture {capture} is away: {code} {message}")


class Session:
    """One connection for questions, opened when it is used, and again after it broke."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: pymysql.Connection[Any] | None = None

    @property
    def connection(self) -> "pymysql.Connection[Any]":
        if self._connection is None:
            self._connection = connect(self.address)
        return self._connection

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with translated(self.address.capture), self.connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall())
        except SourceInterrupted:
            self.close()
            raise

    def variables(self, *names: str) -> dict[str, str]:
        """Global settings; those that this server does not have are left out."""
        quoted = ", ".join(["%s"] * len(names))
        found = self.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({quoted})", *names)
        return {name.lower(): value for name, value in found}

    def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            if connection.open:
                connection._force_close()  # type: ignore[attr-defined]  # no goodbye to wait for
