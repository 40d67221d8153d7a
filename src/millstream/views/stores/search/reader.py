"""Reads a view from its full-text index, as of one commit for each call. Writes nothing.

    view.search("solar panel")                     rows with any of these words, the best first
    view.search('+solar -wind title:"new roof"')   docs/formats/search_views.md has the syntax

A key is one term of the index. What is asked by range or condition is answered from all rows.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.keys import key_fitter
from millstream.views.moment_reads import MomentReads
from millstream.views.store import BadQuestion, Row, ViewNotFound, require_generation
from millstream.views.stores.arrow_reads import ArrowMoment, Loaded
from millstream.views.stores.search.documents import Query, key_writer, row_reader
from millstream.views.stores.search.index import (
    IndexFailed,
    IndexMoment,
    SearchGeneration,
    translated,
)
from millstream.views.view_book import ViewBook

SCORE = "_score"
QUERY_CHARACTERS_MAX = 2000
# Each is kept in memory until all are found.
HITS_MAX = 10_000
QUOTED = re.compile(r'"[^"]*"')
# tantivy takes "x AND NOT y" for "x and a query that excludes y alone", which nothing meets.
LONE_NOT = re.compile(r"\b(?:AND|OR)\s+NOT\b")


class SearchMoment:
    """A view as of one commit of its index."""

    def __init__(self, view: str, found: IndexMoment, path: Path) -> None:
        self._found, self._path, self._view = found, path, view
        self.state = found.state
        self._layout = found.state.layout(view)
        self._fit_key = key_fitter(self._layout)
        self._key_of, self._row_of = key_writer(self._layout), row_reader(self._layout)

    @property
    def schema(self) -> Schema:
        return self._layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        terms = [self._key_of(self._fit_key(key)) for key in keys]
        with translated(self._path):
            found = [self._found.find(term) for term in terms]
        return [None if document is None else self._row_of(document) for document in found]

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        return self._all.range(first, last, limit=limit)

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        return self._all.scan(where=where, order_by=order_by, limit=limit)

    def count(self) -> int:
        return self._found.count

    def position(self) -> Positions:
        return self._found.state.positions

    def arrow(self) -> pa.Table:
        return self._all.arrow()

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, every_word: bool = False
    ) -> list[Row]:
        """The rows that match best, each with a `_score`; with `every_word` only those that have
        all words."""
        require_hits(limit, offset)
        asked = self._parsed(query, every_word=every_word)
        with translated(self._path):
            hits = self._found.hits(asked, limit=limit, offset=offset)
            documents = [(score, self._found.searcher.doc(at)) for score, at in hits]
        return [{**self._row_of(document), SCORE: score} for score, document in documents]

    def _parsed(self, query: str, *, every_word: bool) -> Query:
        if not isinstance(query, str) or len(query) > QUERY_CHARACTERS_MAX:
            raise BadQuestion(f"a query is a text of up to {QUERY_CHARACTERS_MAX} characters")
        if LONE_NOT.search(QUOTED.sub("", query)):
            raise BadQuestion(
                f"view {self._view}: the query {query!r}: write -word for AND NOT word"
            )
        try:
            return self._found.index.parse_query(
                query, list(self._found.text), conjunction_by_default=every_word
            )
        except ValueError as error:
            raise BadQuestion(f"view {self._view}: the query {query!r}: {error}") from None

    @cached_property
    def _all(self) -> ArrowMoment:
        with translated(self._path):
            rows = [self._row_of(document) for document in self._found.documents()]
        table = pa.Table.from_pylist(rows, nullable_arrow_schema(self.schema))
        return ArrowMoment(self._view, Loaded(schema=self.schema, key=self.key, table=table))


class SearchReads(MomentReads):
    """A `ViewReads`: the generation that is served, whichever that is then; or this one."""

    def __init__(
        self,
        path: Path,
        read_book: Callable[[], ViewBook],
        *,
        view: str,
        generation: int | None = None,
    ) -> None:
        self._path, self._read_book, self._view = path, read_book, view
        self._generation = generation
        self._lock = threading.Lock()
        self._opened: SearchGeneration | None = None
        self._last: SearchMoment | None = None

    @contextmanager
    def moment(self) -> Iterator[SearchMoment]:
        """What is asked of it belongs together."""
        yield self._now()

    def _now(self) -> SearchMoment:
        with self._lock:
            generation, found = self._opened_moment()
            if self._last is None or self._last.state != found.state:
                self._last = SearchMoment(self._view, found, generation.path)
            return self._last

    def _opened_moment(self) -> tuple[SearchGeneration, IndexMoment]:
        """A directory that is gone was dropped if the book names another one by now, or none."""
        while True:
            generation = self._found()
            try:
                return generation, generation.moment()
            except IndexFailed:
                if self._found() is generation:
                    raise

    def _found(self) -> SearchGeneration:
        book = self._read_book()
        if book.served is None:
            raise ViewNotFound(view=self._view, place=self._path)
        number = book.served if self._generation is None else self._generation
        require_generation(self._view, number, tuple(book.born))
        path = self._path / book.directory(number)
        if self._opened is None or self._opened.path != path:
            self._opened, self._last = SearchGeneration(path, view=self._view), None
        return self._opened

    def arrow(self) -> pa.Table:
        return self._now().arrow()

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, every_word: bool = False
    ) -> list[Row]:
        return self._now().search(query, limit=limit, offset=offset, every_word=every_word)

    def close(self) -> None:
        with self._lock:
            self._opened = self._last = None


def require_hits(limit: int, offset: int) -> None:
    if limit < 1 or offset < 0 or limit + offset > HITS_MAX:
        raise BadQuestion(f"limit {limit} after {offset}: 1 to {HITS_MAX} in all")
