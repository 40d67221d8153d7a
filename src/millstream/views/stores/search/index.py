"""One generation of a view as an index of tantivy on disk: opened, read as of a commit, committed.

A commit is one step, synced: the rows of a batch and the document of its state. Knows no claims:
who may write is decided before (`store.py`).
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.base.disk import DiskFull, RealDisk
from millstream.base.errors import Corrupt
from millstream.views.stores.search.documents import (
    KEY,
    STATE_KEY,
    Document,
    Index,
    Query,
    add_analyzer,
    facts_of,
    index_schema,
    key_writer,
    row_writer,
    state_document,
)
from millstream.views.view_book import GenerationState, state_from

if TYPE_CHECKING:
    from tantivy import DocAddress, IndexWriter, Searcher

WRITER_BYTES = 64_000_000
NO_SPACE = ("No space left on device", "Disk quota exceeded")


class IndexFailed(Corrupt):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: the index could not be read or written ({problem})")
        self.path, self.problem = path, problem


class SearchGeneration:
    """The directory of one index. `text` and `language` are as they were when it was made."""

    def __init__(self, path: Path, *, view: str) -> None:
        self.path, self.view = path, view
        self._index: Index | None = None

    def exists(self) -> bool:
        return self.path.exists() and Index.exists(str(self.path))

    def make(self, state: GenerationState, *, text: tuple[str, ...], language: str | None) -> None:
        """With nothing in it, but its state."""
        self.path.mkdir(parents=True, exist_ok=True)
        with translated(self.path):
            self._index = quiet(Index(index_schema(text), str(self.path)))
            add_analyzer(self._index, language)
            facts = {**state.facts(), "text": list(text), "language": language}
            with self._writing() as writer:
                writer.add_document(state_document(facts))
        RealDisk().sync_directory(self.path.parent)

    def moment(self) -> "IndexMoment":
        """As of the last commit."""
        with translated(self.path):
            if self._index is None:
                self._index = quiet(Index.open(str(self.path)))
            self._index.reload()
            moment = IndexMoment(self._index, self._index.searcher(), self.path)
            add_analyzer(self._index, moment.language)
            return moment

    def commit(
        self,
        state: GenerationState,
        *,
        of: "IndexMoment",
        upserts: pa.Table,
        deletes: pa.Table | None,
    ) -> None:
        """The rows and this state, in one step; without `deletes` in place of all that is there."""
        layout = state.layout(self.view)
        key_of, document_of = key_writer(layout), row_writer(layout, of.text)
        with translated(self.path), self._writing() as writer:
            if deletes is None:
                writer.delete_all_documents()
            else:
                _delete(writer, [STATE_KEY, *map(key_of, deletes.to_pylist())])
            for row in upserts.to_pylist():
                key = key_of(row)
                if deletes is not None:
                    writer.delete_documents_by_term(KEY, key)
                writer.add_document(document_of(row, key))
            facts = {**state.facts(), "text": list(of.text), "language": of.language}
            writer.add_document(state_document(facts))

    @contextlib.contextmanager
    def _writing(self) -> "Iterator[IndexWriter]":
        """One commit of what is done inside. The writer is not kept: it holds tantivy's lock."""
        assert self._index is not None
        writer = self._index.writer(WRITER_BYTES, 1)
        try:
            # A commit that was cut short has left files with the names of the next one's.
            writer.garbage_collect_files()
            yield writer
            writer.commit()
        finally:
            writer.wait_merging_threads()
        # tantivy syncs all files, but not the rename of meta.json, which is the commit.
        RealDisk().sync_directory(self.path)


def quiet(index: Index) -> Index:
    """Looks for commits when it is asked to, and not in a thread of its own."""
    index.config_reader(reload_policy="manual")
    return index


def _delete(writer: "IndexWriter", keys: Iterable[str]) -> None:
    for key in keys:
        writer.delete_documents_by_term(KEY, key)


class IndexMoment:
    """An index as of one commit."""

    def __init__(self, index: Index, searcher: "Searcher", path: Path) -> None:
        self.index, self.searcher = index, searcher
        document = self.find(STATE_KEY)
        if document is None:
            raise IndexFailed(path=path, problem="it has no state")
        facts = facts_of(document)
        self.state = state_from(facts)
        self.text: tuple[str, ...] = tuple(facts["text"])
        self.language: str | None = facts["language"]

    @property
    def count(self) -> int:
        return int(self.searcher.num_docs) - 1

    def find(self, key: str) -> Document | None:
        query = Query.term_query(self.index.schema, KEY, key, index_option="basic")
        hits = self.searcher.search(query, 1, count=False).hits
        return self.searcher.doc(hits[0][1]) if hits else None

    def documents(self) -> Iterator[Document]:
        """Those of all rows."""
        for _, address in self.hits(Query.all_query(), limit=max(1, self.count)):
            yield self.searcher.doc(address)

    def hits(
        self, query: Query, *, limit: int, offset: int = 0
    ) -> "list[tuple[float, DocAddress]]":
        """The best first; the document of the state is never among them."""
        state = Query.term_query(self.index.schema, KEY, STATE_KEY, index_option="basic")
        found = self.searcher.search(
            query.and_must_not_match(state), limit, count=False, offset=offset
        )
        return list(found.hits)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """tantivy's errors, all of which are ValueErrors, in our own words."""
    try:
        yield
    except (ValueError, OSError) as error:
        if any(words in str(error) for words in NO_SPACE):
            raise DiskFull(path=path) from error
        raise IndexFailed(path=path, problem=str(error)) from error
