"""Rows of COPY ... TO STDOUT, as fast as they come.

psycopg's own reader waits for each row anew, which takes five times as long as all of this.
"""

import contextlib
import select
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq

if TYPE_CHECKING:
    from psycopg import sql

_ENDED = -1
_NOTHING_NOW = 0


def copied(
    connection: "psycopg.Connection[Any]", statement: "sql.Composed"
) -> Generator[memoryview, None, None]:
    """Each row as COPY writes it. One that is left before its end is cancelled."""
    pg = connection.pgconn
    begun = pg.exec_(statement.as_bytes(connection))
    if begun.status != pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(begun)
    is_ended = False
    try:
        yield from _rows(pg)
        is_ended = True
    finally:
        if not is_ended:
            _cancel(pg)
    _end(pg)


def _rows(pg: Any) -> Iterator[memoryview]:
    take, readable = pg.get_copy_data, select.poll()  # select ends at file number 1,023
    readable.register(pg.socket, select.POLLIN)
    while True:
        length, row = take(1)  # 1: do not wait
        if length > 0:
            yield row
        elif length == _NOTHING_NOW:
            readable.poll()
            pg.consume_input()
        else:
            return


def _end(pg: Any) -> None:
    while (result := pg.get_result()) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)


def _cancel(pg: Any) -> None:
    with contextlib.suppress(psycopg.Error):
        pg.get_cancel().cancel()
        while pg.get_copy_data(0)[0] != _ENDED:
            pass
        _end(pg)
