"""A view in Redis: a cache that is kept exact, for who reads by key from many places.

Rows are fields of a hash, in JSON that any language reads; a sorted set has their keys in order.
A batch is staged first and then applied by one script, together with its receipt: readers see all
of it or nothing. What is in memory is as durable as the server's `appendfsync` makes it: after a
loss the job stops with `RowsLost`, and a rebuild fills the view again.
docs/formats/redis_views.md has the keys; `reader.py` reads them.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millstream.base.errors import Retryable
from millstream.base.ports import BatchReceipt
from millstream.base.schema import Schema
from millstream.views.receipts import ClaimLost, RowsLost, is_due, require_newest
from millstream.views.store import Generation, Home, NotInThisStore
from millstream.views.stores.arrow_netting import NettedTable, netted_table
from millstream.views.stores.redis.link import (
    FORMAT,
    SERVED,
    VIEW,
    Entry,
    Notes,
    RedisLink,
    Step,
    batch_field,
    layout_field,
)
from millstream.views.stores.redis.reader import RedisReads
from millstream.views.stores.redis.values import RedisRows
from millstream.views.stores.stored_keys import StoredKeys
from millstream.views.table_layout import (
    BadView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)
from millstream.views.view_book import GenerationState, ViewBook, to_json

# Who claims or serves while a batch is written makes it look again; nobody does so often.
LOOKS_MAX = 10
LENGTH = struct.Struct(">I")
NO_ROW = b""
LAYOUT_FACTS = ("key", "schema")

# What is to be done, given what the notes say; None for nothing. Raises if it must not be.
Decide = Callable[[RedisLink, Notes], Step | None]


class RedisContended(Retryable):
    def __init__(self, *, place: str) -> None:
        super().__init__(f"{place}: others have changed it {LOOKS_MAX} times meanwhile. Try again")
        self.place = place


@dataclass(frozen=True, slots=True)
class Redis:
    """`stores.Redis("redis://cache:6379/0")`; keys begin with `prefix`, the application's name."""

    url: str = "redis://127.0.0.1:6379/0"
    prefix: str | None = None

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "RedisStore":
        if home.history_ms is not None:
            raise NotInThisStore(
                view=view, store="Redis", question="history", instead="keep it in SQLite"
            )
        prefix = home.app if self.prefix is None else self.prefix
        return RedisStore(self.url, prefix=prefix, view=view, key=key)


class RedisStore:
    """One view."""

    def __init__(self, url: str, *, prefix: str, view: str, key: Sequence[str]) -> None:
        self.view = view
        self._url, self._prefix, self._key = url, prefix, tuple(key)
        self.place = self._link().place

    def writer(self, generation: int) -> "RedisView":
        return RedisView(self._link(), view=self.view, key=self._key, generation=generation)

    def reader(self, generation: int | None = None) -> RedisReads:
        return RedisReads(self._link(), view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        link = self._link()
        try:
            notes = link.notes()
        finally:
            link.close()
        book = notes.book
        return [
            state.generation(number, is_served=number == book.served)
            for number in book.born
            if (state := notes.state(number)) is not None
        ]

    def serve(self, generation: int) -> None:
        self._change(lambda book: book.rolled_back(self.view, generation))

    def drop(self, generation: int | None = None) -> None:
        if generation is None:
            self._change(lambda book: book.emptied() if book.born else book)
        else:
            self._change(lambda book: book.without(self.view, generation))

    def _change(self, after: Callable[[ViewBook], ViewBook]) -> None:
        link = self._link()
        try:
            changed(link, lambda link, notes: _booked(link, notes, after(notes.book)))
        finally:
            link.close()

    def _link(self) -> RedisLink:
        return RedisLink(self._url, prefix=self._prefix, view=self.view)


class RedisView:
    """What a job writes a view with. One caller at a time."""

    def __init__(self, link: RedisLink, *, view: str, key: Sequence[str], generation: int) -> None:
        self.view, self.generation = view, generation
        self._link, self._key = link, tuple(key)
        self._layout: TableLayout | None = None
        self._job, self._epoch = "", 0

    def claim(self, job: str, columns: Schema) -> int:
        wanted = view_layout(self.view, columns, self._key)

        def claimed(link: RedisLink, notes: Notes) -> Step:
            book = notes.book.claimed(job, self.generation, place=link.place)
            state = _claimed_state(notes.state(self.generation), wanted, book.epoch)
            self._job, self._epoch = job, book.epoch
            return _noted(notes, self.generation, state, book)

        changed(self._link, claimed)
        self._layout = wanted
        return self._epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout = self._fitting(changes)
        if not self._is_due(self._link.notes(), receipt):  # before the work of netting
            return False
        netted = netted_table(layout, changes)

        def written(link: RedisLink, notes: Notes) -> Step | None:
            if not self._is_due(notes, receipt):
                return None
            entries = entries_of(netted, layout)
            staged = link.stage(entries, generation=self.generation, epoch=receipt.epoch)
            return self._applied(notes, receipt, staged)

        return changed(self._link, written)

    def serve(self, *, epoch: int | None = None) -> None:
        """Let readers see this generation, and keep the one they saw; the others go."""

        def served(link: RedisLink, notes: Notes) -> Step | None:
            self._require_claim(notes)
            book = notes.book.serving(self.generation, job=self._job, epoch=epoch or self._epoch)
            return _booked(link, notes, book)

        changed(self._link, served)

    def close(self) -> None:
        self._link.close()

    def _fitting(self, changes: pa.Table) -> TableLayout:
        if self._layout is None:
            raise BadView(f"view {self.view} is written without a claim")
        require_fitting(self._layout, changes.schema)
        return self._layout

    def _is_due(self, notes: Notes, receipt: BatchReceipt) -> bool:
        require_newest(receipt.job, receipt.epoch, claimed=notes.book.epoch)
        state = notes.state(self.generation)
        if state is None and receipt.batch > 0:
            raise RowsLost(view=self.view, place=self._link.place, batch=receipt.batch)
        if state is None:
            raise ClaimLost(place=self._link.place)
        return is_due(receipt, state.receipt, view=self.view, place=self._link.place)

    def _require_claim(self, notes: Notes) -> None:
        if notes.state(self.generation) is None:
            raise ClaimLost(place=self._link.place)

    def _applied(self, notes: Notes, receipt: BatchReceipt, staged: int) -> Step:
        state = notes.state(self.generation)
        assert state is not None, "a batch that is due has a state"
        number, link = self.generation, self._link
        starts_over = receipt.batch == 0
        return Step(
            expect=notes.seen(VIEW, batch_field(number)),
            put={batch_field(number): _batch_text(state.after(receipt))},
            unlink=(link.rows(number), link.index(number)) if starts_over else (),
            into=number,
            staged_by=receipt.epoch,
            staged=staged,
        )


# --- steps


def changed(link: RedisLink, decide: Decide) -> bool:
    """Look, decide and change, until nobody came between; False if there was nothing to do."""
    for _ in range(LOOKS_MAX):
        step = decide(link, link.notes())
        if step is None:
            return False
        if link.change(step):
            return True
    raise RedisContended(place=link.place)


def _noted(notes: Notes, number: int, state: GenerationState, book: ViewBook) -> Step:
    layout = to_json(_only(state.facts(), LAYOUT_FACTS))
    return Step(
        expect=notes.seen(VIEW, layout_field(number), batch_field(number)),
        put={
            "format": FORMAT,
            layout_field(number): layout,
            batch_field(number): _batch_text(state),
            **_book_texts(book),
        },
    )


def _booked(link: RedisLink, notes: Notes, book: ViewBook) -> Step | None:
    """The book as it is to be; generations that are not in it go."""
    if book == notes.book:
        return None
    gone = [number for number in notes.book.born if number not in book.born]
    return Step(
        expect=notes.seen(VIEW),
        put=_book_texts(book),
        remove=[
            *(of(number) for number in gone for of in (layout_field, batch_field)),
            *([SERVED] if book.served is None else []),
        ],
        unlink=[of(number) for number in gone for of in (link.rows, link.index)],
    )


def _claimed_state(
    kept: GenerationState | None, wanted: TableLayout, epoch: int
) -> GenerationState:
    if kept is None:
        return GenerationState(key=wanted.key, schema=wanted.schema, epoch=epoch)
    grown = grown_layout(kept.layout(wanted.view), wanted)
    return replace(kept, schema=grown.schema, epoch=epoch)


def _book_texts(book: ViewBook) -> dict[str, str]:
    served = {} if book.served is None else {SERVED: str(book.served)}
    return {VIEW: to_json(book.facts()), **served}


def _batch_text(state: GenerationState) -> str:
    facts = state.facts()
    return to_json({name: facts[name] for name in facts if name not in LAYOUT_FACTS})


def _only(facts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: facts[name] for name in names}


# --- rows


def entries_of(netted: NettedTable, layout: TableLayout) -> Iterator[Entry]:
    keys, rows = StoredKeys(layout), RedisRows(layout.schema)
    for row in netted.deletes.to_pylist():
        text = keys.text(row)
        yield text, member_of(keys.sortable(row), text), NO_ROW
    for row in netted.upserts.to_pylist():
        text = keys.text(row)
        yield text, member_of(keys.sortable(row), text), rows.encode(row)


def member_of(sortable: bytes, text: bytes) -> bytes:
    """Of the index: in the order of the keys, and with the text by which the row is found."""
    return sortable + text + LENGTH.pack(len(text))
