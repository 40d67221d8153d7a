"""A database in memory that keeps the promises of a change source; tests write its script.

    database = ScriptedDatabase()
    orders = database.table("orders", key=("id",))
    database.commit(created(orders, {"id": 1}), deleted(orders, {"id": 2}))
    database.interrupt(SourceInterrupted("the network is gone"))

Positions are like PostgreSQL's, "0/1A". All its sources share it, as connections share a server:
it goes on while a capture is restarted.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.base.schema import Scalar
from millstream.capture.change import (
    CapturedColumn,
    CapturedTable,
    Change,
    Message,
    Quiet,
    Transaction,
)
from millstream.capture.definition import CaptureDefinition
from millstream.capture.source import Finding, Lag

Row = dict[str, Any]


def position(number: int) -> str:
    return f"0/{number:X}"


def number_of(position: str) -> int:
    return int(position.partition("/")[2], 16)


def encoded(row: Row | None) -> bytes | None:
    return None if row is None else json.dumps(row, separators=(",", ":")).encode()


def table_of(
    name: str, *, key: Sequence[str] = ("id",), capture: str = "shop", **columns: Scalar
) -> CapturedTable:
    """With a BIGINT `id`, unless its columns are given."""
    types = columns or {"id": Scalar.BIGINT, "item": Scalar.STRING}
    return CapturedTable(
        name=f"public.{name}",
        topic=f"{capture}.{name}",
        key=tuple(key),
        columns=tuple(
            CapturedColumn(name=one, database_type=type.value.lower(), type=type)
            for one, type in types.items()
        ),
    )


def key_of(table: CapturedTable, row: Row) -> bytes | None:
    return encoded({name: row[name] for name in table.key}) if table.key else None


def created(table: CapturedTable, row: Row) -> Change:
    return Change(table, "c", key_of(table, row), None, encoded(row))


def updated(table: CapturedTable, row: Row, *, unavailable: tuple[str, ...] = ()) -> Change:
    return Change(table, "u", key_of(table, row), None, encoded(row), unavailable)


def deleted(table: CapturedTable, row: Row) -> Change:
    key = key_of(table, row)
    return Change(table, "d", key, key, None)


def truncated(table: CapturedTable) -> Change:
    return Change(table, "t", None, None, None)


@dataclass(frozen=True, slots=True)
class ScriptedChunk:
    table: CapturedTable
    rows: Sequence[tuple[bytes, bytes]]
    last_key: str | None
    closes_at: str

    def sees(self, transaction: Transaction) -> bool:
        return number_of(transaction.commit) <= number_of(self.closes_at)


class ScriptedDatabase:
    """Thread-safe. A transaction's commit position is its number, from 1."""

    def __init__(self, capture: str = "shop") -> None:
        self.name = capture
        self.captured: dict[str, CapturedTable] = {}
        self.steps: list[Transaction | Exception] = []
        self.rows: dict[str, dict[bytes, bytes]] = {}
        self.confirmed = 0
        self.retained_bytes = 0
        self.findings: list[Finding] = []
        self.is_prepared = False
        self.prepared_times = 0
        self.added: list[str] = []
        self.deleted_keys: list[bytes] = []
        self.changed = threading.Condition()

    def table(self, name: str, *, key: Sequence[str] = ("id",), **columns: Scalar) -> CapturedTable:
        return self.capture(table_of(name, key=key, capture=self.name, **columns))

    def capture(self, table: CapturedTable) -> CapturedTable:
        self.captured[table.name] = table
        self.rows.setdefault(table.name, {})
        return table

    def commit(
        self, *changes: Change | Message, at_ms: int = 1_000, reloads: tuple[str, ...] = ()
    ) -> Transaction:
        with self.changed:
            number = len(self.steps) + 1
            made = Transaction(
                commit=position(number),
                resume=position(number),
                id=str(700 + number),
                at_ms=at_ms,
                changes=changes,
                reloads=reloads,
            )
            for change in changes:
                self._apply(change)
            self.steps.append(made)
            self.changed.notify_all()
            return made

    def interrupt(self, error: Exception) -> None:
        """Once, to the source that comes to this place of the script."""
        with self.changed:
            self.steps.append(error)
            self.changed.notify_all()

    def put(self, table: CapturedTable, *rows: Row) -> None:
        """Rows that were there before anything was captured."""
        for row in rows:
            self.rows[table.name][key_of(table, row) or b""] = encoded(row) or b""

    def open(
        self,
        definition: CaptureDefinition | None = None,
        *,
        url: str | None = None,
        known: Iterable[CapturedTable] = (),
    ) -> "ScriptedSource":
        return ScriptedSource(self)

    def _apply(self, change: Change | Message) -> None:
        if isinstance(change, Message):
            return
        rows = self.rows.setdefault(change.table.name, {})
        if change.op == "t":
            rows.clear()
        elif change.after is None:
            rows.pop(change.key or b"", None)
        else:
            rows[change.key or b""] = change.after


class ScriptedSource:
    kind = "postgresql"

    def __init__(self, database: ScriptedDatabase) -> None:
        self._database = database
        self.database = "shop"
        self.quiet_seconds = 1.0
        self._is_closed = False

    def check(self) -> list[Finding]:
        return self._database.findings

    def prepare(self) -> str:
        """A second time, when changes were lost, it begins with what is there now."""
        database = self._database
        database.is_prepared, database.prepared_times = True, database.prepared_times + 1
        return position(0 if database.prepared_times == 1 else len(database.steps))

    def tables(self) -> list[CapturedTable]:
        return list(self._database.captured.values())

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        at = number_of(after)
        while not self._is_closed:
            step = self._next(at)
            if step is None:
                yield Quiet(resume=position(at))
                self._wait(at)
                continue
            at += 1
            if isinstance(step, Exception):
                self._take_out(at, step)
            else:
                yield step._replace(changes=iter(tuple(step.changes)))

    def is_past(self, position: str, other: str) -> bool:
        return number_of(position) >= number_of(other)

    def confirm(self, position: str) -> None:
        self._database.confirmed = number_of(position)

    def add_tables(self, names: Sequence[str]) -> None:
        self._database.added.extend(names)

    def lag(self, position: str) -> Lag:
        behind = len(self._database.steps) - number_of(position)
        return Lag(bytes=behind, retained_bytes=self._database.retained_bytes)

    def loader(self) -> "ScriptedLoader":
        return ScriptedLoader(self._database)

    def drop(self) -> None:
        self._database.is_prepared = False

    def delete_rows(self, table: CapturedTable, keys: Sequence[bytes]) -> None:
        self._database.deleted_keys.extend(keys)

    def close(self) -> None:
        self._is_closed = True

    def _next(self, at: int) -> Transaction | Exception | None:
        steps = self._database.steps
        return steps[at] if at < len(steps) else None

    def _take_out(self, at: int, error: Exception) -> None:
        """It is raised once; in its place is a transaction without changes."""
        self._database.steps[at - 1] = Transaction(
            commit=position(at), resume=position(at), id="0", at_ms=0, changes=()
        )
        raise error

    def _wait(self, at: int) -> None:
        changed: threading.Condition = self._database.changed
        with changed:
            has_more: Callable[[], bool] = lambda: len(self._database.steps) > at  # noqa: E731
            changed.wait_for(has_more, self.quiet_seconds)


class ScriptedLoader:
    """One range; keys in the order of their JSON. A snapshot is the database as it is now."""

    def __init__(self, database: ScriptedDatabase) -> None:
        self._database = database

    def rows_estimate(self, table: CapturedTable) -> int:
        return len(self._database.rows[table.name])

    def ranges(self, table: CapturedTable, count: int) -> list[tuple[str | None, str | None]]:
        return [(None, None)]

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> ScriptedChunk:
        with self._database.changed:
            found = sorted(self._database.rows[table.name].items())
            closes_at = position(len(self._database.steps))
        rest = [one for one in found if after is None or one[0] > after.encode()]
        rows = rest[:rows_max]
        last_key = rows[-1][0].decode() if len(rest) > rows_max else None
        return ScriptedChunk(table, rows, last_key, closes_at)

    def close(self) -> None:
        pass
