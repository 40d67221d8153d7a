"""`stores.SearchIndex(text=["title", "body"])`: a view as a full-text index, under the app's data.

    views/articles.search/view.json            who writes the view, which generation readers see
    views/articles.search/generation-1-1/      an index of tantivy: rows, and the state of them
    views/articles.search/lock                 held while a batch is written

A batch is one commit of the index: its rows, its receipt and its positions. Who may write is looked
up under the lock, and holds until the commit is done.
docs/formats/search_views.md has the layout; `reader.py` reads it.
"""

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millstream.base.disk import RealDisk, read_file, replace_file
from millstream.base.ports import BatchReceipt
from millstream.base.schema import Schema
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.receipts import is_due, require_newest
from millstream.views.store import Generation, Home, ViewNotFound, require_generation
from millstream.views.stores.arrow_columns import grown_rows
from millstream.views.stores.arrow_netting import netted_table
from millstream.views.stores.search.documents import row_reader, searched
from millstream.views.stores.search.index import IndexMoment, SearchGeneration
from millstream.views.stores.search.reader import SearchReads
from millstream.views.stores.view_lock import locked
from millstream.views.table_layout import (
    BadView,
    ChangedView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)
from millstream.views.view_book import GenerationState, ViewBook, book_from, to_json

BOOK = "view.json"
# The languages that tantivy knows the stems of.
LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil",
    "turkish",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """`text` names the columns whose words are found, all that are text if it is left out; with a
    `language` words are found by their stems."""

    text: Sequence[str] | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if self.language is not None and self.language not in LANGUAGES:
            raise BadView(f"no stems of {self.language!r}: {', '.join(LANGUAGES)}")

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "SearchStore":
        path = home.data / "views" / f"{view}.search"
        return SearchStore(path.absolute(), view=view, key=key, words=self)

    def differs_from(self, found: IndexMoment) -> list[str]:
        text = found.text if self.text is None else tuple(self.text)
        if (text, self.language) == (found.text, found.language):
            return []
        return [f"it searches {', '.join(found.text)} ({found.language or 'any language'})"]


class BookFile:
    """Who writes the view: a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> ViewBook:
        content = read_file(RealDisk(), self.path / BOOK)
        return ViewBook() if content is None else book_from(json.loads(content))

    def keep(self, book: ViewBook) -> None:
        replace_file(RealDisk(), self.path / BOOK, to_json(book.facts()).encode())


class SearchStore:
    def __init__(self, path: Path, *, view: str, key: tuple[str, ...], words: SearchIndex) -> None:
        self.view, self.place = view, str(path)
        self._path, self._key, self._words = path, key, words
        self._book = BookFile(path)

    def writer(self, generation: int) -> "SearchWriter":
        return SearchWriter(
            self._path, view=self.view, key=self._key, generation=generation, words=self._words
        )

    def reader(self, generation: int | None = None) -> SearchReads:
        return SearchReads(self._path, self._book.read, view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        book = self._book.read()
        found = []
        for number in book.born:
            index = SearchGeneration(self._path / book.directory(number), view=self.view)
            state = index.moment().state
            found.append(state.generation(number, is_served=number == book.served))
        return found

    def serve(self, generation: int) -> None:
        if self._book.read().served is None:
            raise ViewNotFound(view=self.view, place=self.place)
        with locked(self._path):
            self._book.keep(self._book.read().rolled_back(self.view, generation))

    def drop(self, generation: int | None = None) -> None:
        if self._book.read().served is None:
            if generation is not None:
                require_generation(self.view, generation, ())
            return
        with locked(self._path):
            book = self._book.read()
            left = book.emptied() if generation is None else book.without(self.view, generation)
            self._book.keep(left)
            remove_others(self._path, left)


class SearchWriter:
    """What a job writes a generation with. One caller at a time."""

    def __init__(
        self, path: Path, *, view: str, key: tuple[str, ...], generation: int, words: SearchIndex
    ) -> None:
        self.view, self.generation = view, generation
        self._path, self._key, self._words = path, key, words
        self._book = BookFile(path)
        self._layout: TableLayout | None = None
        self._index: SearchGeneration | None = None
        self._job, self._epoch = "", 0
        self._lock = threading.Lock()

    def claim(self, job: str, columns: Schema) -> int:
        wanted = view_layout(self.view, columns, self._key)
        with self._changing() as book:
            claimed = book.claimed(job, self.generation, place=self._path)
            self._index = self._prepared(claimed, wanted)
            self._book.keep(claimed)
            remove_others(self._path, claimed)
            self._layout, self._job, self._epoch = wanted, job, claimed.epoch
        return claimed.epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout, index = self._fitting(changes)
        with self._changing() as book:
            require_newest(receipt.job, receipt.epoch, claimed=book.epoch)
            require_generation(self.view, self.generation, tuple(book.born))
            now = index.moment()
            if not is_due(receipt, now.state.receipt, view=self.view, place=self._path):
                return False
            netted = netted_table(layout, changes)
            # Batch 0: a job whose directory was removed starts over.
            deletes = None if receipt.batch == 0 else netted.deletes
            after = now.state.after(receipt)
            index.commit(after, of=now, upserts=netted.upserts, deletes=deletes)
        return True

    def serve(self, *, epoch: int | None = None) -> None:
        with self._changing() as book:
            served = book.serving(self.generation, job=self._job, epoch=epoch or self._epoch)
            self._book.keep(served)
            remove_others(self._path, served)

    def close(self) -> None:
        self._index = None

    @contextmanager
    def _changing(self) -> Iterator[ViewBook]:
        with self._lock, locked(self._path):
            yield self._book.read()

    def _prepared(self, book: ViewBook, wanted: TableLayout) -> SearchGeneration:
        """The generation's index, made or grown to what is wanted."""
        index = SearchGeneration(self._path / book.directory(self.generation), view=self.view)
        if not index.exists():
            state = GenerationState(key=wanted.key, schema=wanted.schema, epoch=book.epoch)
            text = searched(wanted, self._words.text)
            index.make(state, text=text, language=self._words.language)
            return index
        now = index.moment()
        grown = grown_layout(now.state.layout(self.view), wanted)
        if changes := self._words.differs_from(now):
            raise ChangedView(view=self.view, changes=changes)
        if grown.schema != now.state.schema:
            rows = grown_rows(grown, all_rows(self.view, now))
            state = replace(now.state, schema=grown.schema)
            index.commit(state, of=now, upserts=rows, deletes=None)
        return index

    def _fitting(self, changes: pa.Table) -> tuple[TableLayout, SearchGeneration]:
        if self._layout is None or self._index is None:
            raise BadView(f"view {self.view} is written without a claim")
        require_fitting(self._layout, changes.schema)
        return self._layout, self._index


def all_rows(view: str, now: IndexMoment) -> pa.Table:
    read = row_reader(now.state.layout(view))
    rows = [read(document) for document in now.documents()]
    return pa.Table.from_pylist(rows, nullable_arrow_schema(now.state.schema))


def remove_others(path: Path, book: ViewBook) -> None:
    """What is left of generations that are no longer in the book."""
    kept = {book.directory(number) for number in book.born}
    for directory in path.glob("generation-*"):
        if directory.name not in kept:
            shutil.rmtree(directory, ignore_errors=True)
