"""Reads a view from its Delta tables, as of one commit for each call, or of a former one.

A version of the view is a version of the Delta table that is served. Writes nothing.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from millstream.views.history import OutsideHistory, Span, Version, time_ms_of
from millstream.views.store import ViewNotFound, require_generation
from millstream.views.stores.arrow_columns import fitted_rows
from millstream.views.stores.arrow_reads import ArrowReads, Loaded
from millstream.views.stores.delta.table import (
    DeltaPlace,
    DeltaTable,
    find_table,
    note_of,
    renew,
    translated,
)
from millstream.views.view_book import ViewBook, state_from


class DeltaReads(ArrowReads):
    """The generation that is served, whichever that is then; or this one, served or not."""

    def __init__(
        self,
        place: DeltaPlace,
        read_book: Callable[[], ViewBook],
        *,
        view: str,
        generation: int | None = None,
    ) -> None:
        super().__init__(view, self._load_newest)
        self._at, self._read_book, self._name = place, read_book, view
        self._generation = generation
        self._place = place
        self._table: DeltaTable | None = None
        self._loaded: tuple[int, Loaded] | None = None

    def as_of(self, *, version: int | None = None, time: datetime | None = None) -> ArrowReads:
        """The view as it was, for as long as Delta keeps its files."""
        with self._lock:
            table = self._opened()
            past = version_asked(self._name, commits_of(self._place, table), version, time)
            found = find_table(self._place, version=past.number)
            if found is None:
                raise ViewNotFound(view=self._name, place=self._at.uri)
            loaded = load(self._name, self._place, found)
        return ArrowReads(self._name, lambda: loaded)

    def _load_newest(self) -> Loaded:
        table = self._opened()
        if self._loaded is None or self._loaded[0] != table.version():
            self._loaded = (table.version(), load(self._name, self._place, table))
        return self._loaded[1]

    def _opened(self) -> DeltaTable:
        place = self._at.at(self._directory())
        if self._table is not None and place == self._place:
            renew(place, self._table)
            return self._table
        self._table, self._place, self._loaded = find_table(place), place, None
        if self._table is None:
            raise ViewNotFound(view=self._name, place=self._at.uri)
        return self._table

    def _directory(self) -> str:
        book = self._read_book()
        if book.served is None:
            raise ViewNotFound(view=self._name, place=self._at.uri)
        number = book.served if self._generation is None else self._generation
        require_generation(self._name, number, tuple(book.born))
        return book.directory(number)


def load(view: str, place: DeltaPlace, table: DeltaTable) -> Loaded:
    state = state_from(note_of(place, table))
    with translated(place):
        rows = table.to_pyarrow_table()
    layout = state.layout(view)
    return Loaded(
        schema=state.schema,
        key=state.key,
        table=fitted_rows(layout, rows),
        positions=state.positions,
    )


def version_asked(
    view: str, commits: Sequence[Version], version: int | None, time: datetime | None
) -> Version:
    """That version, or the last one at that time; `commits` are those that are kept."""
    at_ms = None if time is None else time_ms_of(time)
    for commit in reversed(commits):
        if commit.number == version or (at_ms is not None and commit.at_ms <= at_ms):
            return commit
    asked = f"version {version}" if time is None else str(time)
    raise OutsideHistory(view=view, asked=asked, span=Span(first=commits[0], last=commits[-1]))


def commits_of(place: DeltaPlace, table: DeltaTable) -> list[Version]:
    """The oldest first. Each commit is a step of its own, so its number is also its end."""
    with translated(place):
        return [
            Version(number=commit["version"], at_ms=commit["timestamp"], seq_end=commit["version"])
            for commit in reversed(table.history())
        ]
