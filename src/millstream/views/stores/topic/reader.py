"""Reads a view from its topic: all of it into memory, then what comes, at every call.

The notes say where a batch ends in each partition, and the reader stops there: every call sees the
view as of one batch. Rows are kept as they are written; `get_many` decodes those that it gives, a
range or a scan all of them, once for each batch. Writes nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.base.errors import Corrupt
from millstream.base.log_clients import Client, Topics
from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.values.json_decoder import JsonDecoder
from millstream.views.keys import key_fitter
from millstream.views.store import Row, ViewNotFound
from millstream.views.stores.arrow_reads import ArrowMoment, Loaded, rows_of
from millstream.views.stores.stored_keys import StoredKeys
from millstream.views.stores.topic.ledger import fold, notes_ends, notes_topic, parked_topic
from millstream.views.stores.topic.notes import KeptGeneration, TopicNotes
from millstream.views.stores.topic.tail import TopicTail
from millstream.views.table_layout import TableLayout


class NotARowOfTheView(Corrupt):
    def __init__(self, *, view: str, topic: str, key: bytes, problem: str) -> None:
        super().__init__(
            f"view {view}: the record {key!r} of topic {topic} is no row of it ({problem}). "
            "Something else writes into the topic"
        )
        self.view, self.topic, self.key = view, topic, key


class NotesReader:
    """The notes of a view, as they are at each call."""

    def __init__(self, client: Client, topic: str) -> None:
        self._topics, self._client, self._topic = Topics(client), client, topic
        self._notes = TopicNotes()
        self._tail: TopicTail | None = None

    def now(self) -> TopicNotes:
        if self._tail is None:
            name = notes_topic(self._topic)
            if name not in self._topics.partitions():
                return TopicNotes()
            self._tail = TopicTail(self._client, name)
        for message in self._tail.read_to(notes_ends(self._topics, self._topic)):
            self._notes.apply(message.key() or b"", message.value())
        return self._notes

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None


def read_notes(client: Client, topic: str) -> TopicNotes:
    reader = NotesReader(client, topic)
    try:
        return reader.now()
    finally:
        reader.close()


class HeldRows:
    """The rows of one generation, as they are in one topic; `born` is the epoch it was made in."""

    def __init__(
        self, client: Client, topic: str, *, view: str, layout: TableLayout, born: int
    ) -> None:
        self.topic, self.view, self.layout, self.born = topic, view, layout, born
        self.values: dict[bytes, bytes] = {}
        self._tail = TopicTail(client, topic)
        self._keys, self._fit_key = StoredKeys(layout), key_fitter(layout)
        self._decoder = JsonDecoder(layout.schema)

    def advance(self, kept: KeptGeneration) -> bool:
        """Read on to the last batch; whether a row has changed."""
        messages = self._tail.read_to(kept.ends)
        for message in messages:
            fold(self.values, message)
        return bool(messages)

    def get(self, keys: Sequence[Any]) -> list[Row | None]:
        texts = [self._keys.text(self._fit_key(key)) for key in keys]
        found = {text: self.values[text] for text in texts if text in self.values}
        rows = dict(zip(found, rows_of(self._decoded(found)), strict=True))
        return [rows.get(text) for text in texts]

    def table(self) -> pa.Table:
        return self._decoded(self.values)

    def close(self) -> None:
        self._tail.close()

    def _decoded(self, values: Mapping[bytes, bytes]) -> pa.Table:
        decoded = self._decoder.decode(pa.array(list(values.values()), pa.binary()))
        for bad in decoded.bad:
            key = list(values)[bad.row]
            raise NotARowOfTheView(view=self.view, topic=self.topic, key=key, problem=bad.reason)
        return pa.Table.from_batches([decoded.batch])


class TopicReads:
    """Thread-safe; close it when you are done."""

    def __init__(
        self, client: Client, topic: str, *, view: str, generation: int | None = None
    ) -> None:
        self._client, self._topic = client, topic
        self._view, self._generation = view, generation
        self._lock = threading.Lock()
        self._notes = NotesReader(client, topic)
        self._held: HeldRows | None = None
        self._moment: ArrowMoment | None = None

    @property
    def schema(self) -> Schema:
        return self._now()[0].layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._now()[0].layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        with self._lock:
            return self._current()[0].get(keys)

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        return self._at_once().range(first, last, limit=limit)

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        return self._at_once().scan(where=where, order_by=order_by, limit=limit)

    def count(self) -> int:
        with self._lock:
            return len(self._current()[0].values)

    def position(self) -> Positions:
        return self._now()[1].state.positions

    def arrow(self) -> pa.Table:
        """All rows, by key."""
        return self._at_once().arrow()

    def close(self) -> None:
        with self._lock:
            self._notes.close()
            self._forget()

    def _now(self) -> tuple[HeldRows, KeptGeneration]:
        with self._lock:
            return self._current()

    def _current(self) -> tuple[HeldRows, KeptGeneration]:
        notes = self._notes.now()
        number = notes.book.served if self._generation is None else self._generation
        kept = notes.kept.get(number) if number is not None else None
        if number is None or kept is None:
            self._forget()
            raise ViewNotFound(view=self._view, place=f"topic {self._topic}")
        is_served = number == notes.book.served
        topic = self._topic if is_served else parked_topic(self._topic, number)
        held = self._hold(topic, kept.state.layout(self._view), notes.book.born[number])
        if held.advance(kept):
            self._moment = None
        return held, kept

    def _hold(self, topic: str, layout: TableLayout, born: int) -> HeldRows:
        """What is held, if it is of this generation and read in this way; else it is read anew:
        a view that was dropped may be there again, in a new topic of the same name."""
        held = self._held
        if held is not None and (held.topic, held.layout, held.born) != (topic, layout, born):
            self._forget()
        if self._held is None:
            self._held = HeldRows(self._client, topic, view=self._view, layout=layout, born=born)
        return self._held

    def _forget(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held = self._moment = None

    def _at_once(self) -> ArrowMoment:
        with self._lock:
            held, kept = self._current()
            positions = kept.state.positions
            if self._moment is None or self._moment.loaded.positions != positions:
                loaded = Loaded(
                    schema=held.layout.schema,
                    key=held.layout.key,
                    table=held.table(),
                    positions=positions,
                )
                self._moment = ArrowMoment(self._view, loaded)
            return self._moment
