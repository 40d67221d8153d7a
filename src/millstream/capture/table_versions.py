"""The versions of captured tables, known by their shape: columns, types, key. Pure.

A shape that was there before keeps its number, so a stream that is read again from an older
position, over a change of a table, hands over the same versions as the first time.
"""

from collections.abc import Iterable
from dataclasses import replace
from threading import Lock

from millstream.capture.change import CapturedTable


class TableVersions:
    """Every version that a capture has seen; `known` are those of former runs. Thread-safe."""

    def __init__(self, known: Iterable[CapturedTable] = ()) -> None:
        self._lock = Lock()
        self._by_shape: dict[CapturedTable, CapturedTable] = {}
        self._last: dict[str, int] = {}
        for table in known:
            self._keep(table)

    def of(self, table: CapturedTable) -> CapturedTable:
        """The table with the number of its shape: a known one, or the next."""
        with self._lock:
            found = self._by_shape.get(_shape(table))
            if found is None:
                found = self._keep(replace(table, version=self._last.get(table.name, 0) + 1))
            return found

    def last_of(self, name: str) -> CapturedTable | None:
        """The newest version of a table."""
        with self._lock:
            number = self._last.get(name)
            return next(
                (
                    table
                    for table in self._by_shape.values()
                    if table.name == name and table.version == number
                ),
                None,
            )

    def _keep(self, table: CapturedTable) -> CapturedTable:
        self._last[table.name] = max(table.version, self._last.get(table.name, 0))
        return self._by_shape.setdefault(_shape(table), table)


def _shape(table: CapturedTable) -> CapturedTable:
    return replace(table, version=0)
