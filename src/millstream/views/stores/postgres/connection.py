"""Connections to PostgreSQL, and its errors in our own words.

Every connection names the schema of its store as the only one that is searched, so that statements
need no names of schemas; times are in UTC. It must be a session of its own: a pooler that gives
out another one for each transaction forgets this.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.views.stores.postgres.driver import conninfo, psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

# UNIQUE NULLS NOT DISTINCT came with 15.
VERSION_MIN = 150_000
# Another run of the job may be in the midst of a large batch.
BUSY_SECONDS_MAX = 30
NAME_BYTES_MAX = 63  # PostgreSQL cuts longer names off, and says so to nobody
# A server whose machine is gone says nothing: 30 + 3 * 10 s, in place of the system's two hours.
DEFAULTS: dict[str, str | int] = {
    "application_name": "millstream",
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# 08: connections; 57P0x: the server stops, crashed or starts; 53300: no connection is free.
AWAY = ("08", "57P01", "57P02", "57P03", "53300")
# 40: a deadlock or a clash, undone; 55P03: a lock that was not to be had; 57014: cancelled.
BUSY = ("40", "55P03", "57014")
FULL = ("53",)  # 53100: the disk; 53200: the memory
# 22: a value out of range; 54: a key longer than a page of the index takes, too many columns
UNSTORABLE = ("22", "54")
GONE = ("42P01", "42703")  # no such table, no such column
# What a server says without a code when it refuses a connection for the moment.
FOR_NOW = ("starting up", "shutting down", "slots", "too many", "recovery", "not yet accepting")
FOR_GOOD = ("does not exist", "pg_hba.conf", "authentication failed")


class ServerAway(Retryable):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(
            f"{place}: PostgreSQL is not to be reached ({problem}). Start it, or mend the address"
        )
        self.place, self.problem = place, problem


class ViewBusy(Retryable):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: somebody else holds what is needed ({problem}). Try again")
        self.place, self.problem = place, problem


class ServerFull(Retryable):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(
            f"{place}: PostgreSQL has no space left ({problem}); nothing of the batch was kept. "
            "Free some, and try again"
        )
        self.place, self.problem = place, problem


class Unstorable(Rejected):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: PostgreSQL cannot keep a value ({problem}); nothing was kept")
        self.place, self.problem = place, problem


class ServerRefused(Rejected):
    """A login, a right or a version that does not do; the message has PostgreSQL's own."""

    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: PostgreSQL refuses ({problem})")
        self.place, self.problem = place, problem


class ViewDamaged(Corrupt):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: not the view that was written ({problem}). Rebuild the view")
        self.place, self.problem = place, problem


def connect(url: str, schema: str, *, place: str) -> Connection:
    given = conninfo.conninfo_to_dict(url)
    with translated(place):
        db = psycopg.connect(conninfo.make_conninfo("", **(DEFAULTS | given)), autocommit=True)
        if db.info.server_version < VERSION_MIN:
            db.close()
            raise ServerRefused(place=place, problem="it is older than version 15")
        _set_up(db, schema)
    return db


def _set_up(db: Connection, schema: str) -> None:
    """A commit that is not on disk when it returns would lose a batch that its job takes for
    written."""
    db.execute(
        """
        SELECT set_config('search_path', quote_ident(%s), false),
               set_config('TimeZone', 'UTC', false),
               set_config('lock_timeout', %s, false),
               set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                          WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
                          false)
        """,
        (schema, f"{BUSY_SECONDS_MAX}s"),
    )


def place_of(url: str, schema: str, view: str) -> str:
    """Where the view is, without the password."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ServerRefused(place=f"view {view}", problem=f"not an address: {error}") from None
    host, port = given.get("host", "localhost"), given.get("port", 5432)
    return f"postgresql://{host}:{port}/{given.get('dbname', '')}, {schema}.{view}"


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise error_from(error, place) from error


def error_from(error: psycopg.Error, place: str) -> Exception:
    code, problem = error.sqlstate or "", _first_line(error)
    if not code and isinstance(error, psycopg.OperationalError):
        return _unconnected(error, place, problem)
    for codes, kind in BY_CODE:
        if code.startswith(codes):
            return kind(place=place, problem=problem)
    return ServerRefused(place=place, problem=problem)


def _unconnected(error: psycopg.Error, place: str, problem: str) -> Exception:
    """libpq has no code for a connection that was not made, only words."""
    has_logged_in = error.pgconn is not None and error.pgconn.used_password
    is_refused = "FATAL" in problem and (has_logged_in or any(one in problem for one in FOR_GOOD))
    if is_refused and not any(one in problem for one in FOR_NOW):
        return ServerRefused(place=place, problem=problem)
    return ServerAway(place=place, problem=problem)


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


BY_CODE: tuple[tuple[tuple[str, ...], Callable[..., Exception]], ...] = (
    (AWAY, ServerAway),
    (BUSY, ViewBusy),
    (FULL, ServerFull),
    (UNSTORABLE, Unstorable),
    (GONE, ViewDamaged),
)
