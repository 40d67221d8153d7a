"""Answers SQL over views with DuckDB, in memory: each view is a table of its name.

One SELECT at a time. It sees the tables that it is given and nothing else: no file, no network, no
variable of the process; it has a bound of memory and of time. The rows are read whole for each
question: a view that is too large for that belongs into a store with SQL of its own.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.base.errors import Rejected
from millstream.views.store import BadQuestion, Row

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Parameters = Sequence[Any] | Mapping[str, Any]

# DuckDB's own, beside the rows it is given; what needs more is refused.
SQL_MEMORY_MAX = "1GB"
SQL_THREADS = 2
SQL_SECONDS_MAX = 60.0
SETTINGS: Mapping[str, Any] = {
    "enable_external_access": False,
    "python_enable_replacements": False,  # else variables of the caller are tables
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "temp_directory": "",
    "memory_limit": SQL_MEMORY_MAX,
    "threads": SQL_THREADS,
}
WIDE_INTEGERS = ("HUGEINT", "UHUGEINT")  # sums of integers; Arrow has decimals for them


class SqlNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"SQL over views needs DuckDB, and {missing} is not installed: "
            "pip install 'millstream[sql]'"
        )
        self.missing = missing


def named_in(text: str, views: Iterable[str]) -> list[str]:
    """Those views whose name is a word of the text: the ones to read for it, or a few more."""
    return [
        view
        for view in views
        if re.search(rf"(?<!\w){re.escape(view)}(?!\w)", text, flags=re.IGNORECASE)
    ]


def answer_rows(text: str, params: Parameters, tables: Mapping[str, "pa.Table"]) -> list[Row]:
    with _answering(text, params, tables) as answer:
        wide = [
            name
            for name, kind in zip(answer.columns, answer.types, strict=True)
            if str(kind) in WIDE_INTEGERS
        ]
        rows: list[Row] = answer.to_arrow_table().to_pylist(maps_as_pydicts="strict")
    for name in wide:
        for row in rows:
            row[name] = None if row[name] is None else int(row[name])
    return rows


def answer_arrow(text: str, params: Parameters, tables: Mapping[str, "pa.Table"]) -> "pa.Table":
    with _answering(text, params, tables) as answer:
        return answer.to_arrow_table()


@contextmanager
def _answering(
    text: str, params: Parameters, tables: Mapping[str, "pa.Table"]
) -> Iterator["duckdb.DuckDBPyRelation"]:
    duckdb = _duckdb()
    try:
        with duckdb.connect(":memory:", config=dict(SETTINGS)) as db:
            for name, table in tables.items():
                db.register(name, table)
            db.execute("SET TimeZone = 'UTC'")
            db.execute("SET lock_configuration = true")
            _require_select(db, text)
            with _interrupted_in_time(db):
                yield db.sql(text, params=params)
    except duckdb.InterruptException as error:
        raise BadQuestion(
            f"SQL over {', '.join(tables)} took more than {SQL_SECONDS_MAX:g} s, and was ended"
        ) from error
    except duckdb.Error as error:
        raise BadQuestion(f"SQL over {', '.join(tables) or 'no view'}: {error}") from error


@contextmanager
def _interrupted_in_time(db: "duckdb.DuckDBPyConnection") -> Iterator[None]:
    timer = threading.Timer(SQL_SECONDS_MAX, db.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _require_select(db: "duckdb.DuckDBPyConnection", text: str) -> None:
    kinds = [statement.type.name for statement in db.extract_statements(text)]
    if kinds != ["SELECT"]:
        given = ", ".join(kinds) or "nothing"
        raise BadQuestion(f"SQL over views is one SELECT; this is {given}")


def _duckdb() -> Any:
    try:
        import duckdb
        import pyarrow  # noqa: F401  # rows come and go in Arrow
    except ImportError as error:
        raise SqlNotInstalled(missing=error.name or "duckdb") from error
    return duckdb
