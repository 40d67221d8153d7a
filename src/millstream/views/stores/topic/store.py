"""A view as a compacted topic: for who follows its changes with any Kafka client.

The key of a record is the key of its row, the value the row as JSON, a tombstone says that a row is
gone. A batch's rows and its receipt are one Kafka transaction; an older run of the job is fenced by
the broker. The topic holds the generation that is served, always: another one grows in a topic
beside it, and when it is served the difference is written, in one transaction again.
docs/formats/topic_views.md has the topics; `reader.py` reads them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.base.errors import Rejected
from millstream.base.log_clients import BROKERS_DEFAULT, Client
from millstream.base.ports import BatchReceipt
from millstream.base.schema import BadSchema, Field, Schema, Struct
from millstream.values.json_encoder import JsonEncoder
from millstream.views.receipts import ClaimLost, RowsLost, is_due, require_newest
from millstream.views.store import Generation, Home, NotInThisStore
from millstream.views.stores.arrow_netting import NettedTable, netted_table
from millstream.views.stores.stored_keys import StoredKeys
from millstream.views.stores.topic.ledger import (
    COMPACTED,
    RESERVED,
    Delivered,
    Note,
    TopicLedger,
    lent_ledger,
    release,
    shared_ledger,
)
from millstream.views.stores.topic.notes import (
    Change,
    KeptGeneration,
    TopicNotes,
    difference,
    note_of,
    note_of_book,
)
from millstream.views.stores.topic.reader import TopicReads, read_notes
from millstream.views.table_layout import (
    BadView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)
from millstream.views.view_book import GenerationState, ViewBook


class TopicOfOthers(Rejected):
    def __init__(self, *, view: str, topic: str) -> None:
        super().__init__(
            f"topic {topic} holds records that are not of view {view}, which would be replaced: "
            "give the view another topic, or delete this one"
        )
        self.view, self.topic = view, topic


@dataclass(frozen=True, slots=True)
class Topic:
    """`stores.Topic("counts")`; without a name it is the view's. Its key is the view's key."""

    name: str | None = None
    partitions: int | None = None

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "TopicStore":
        if home.history_ms is not None:
            raise NotInThisStore(
                view=view, store="a topic", question="history", instead="keep it in SQLite"
            )
        topic = view if self.name is None else self.name
        if topic.startswith(RESERVED):
            raise BadView(
                f"view {view}: topics whose names begin with {' or '.join(RESERVED)} hold what "
                f"views keep beside their rows: give it another topic than {topic}"
            )
        return TopicStore(home.client, topic, view=view, key=key, partitions=self.partitions)


class TopicStore:
    """One view. `client` is librdkafka's configuration, with bootstrap.servers."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        view: str,
        key: Sequence[str],
        partitions: int | None = None,
    ) -> None:
        self.view, self._client, self._topic = view, client, topic
        self._key, self._partitions = tuple(key), partitions
        self.place = f"topic {topic} at {client['bootstrap.servers']}"

    def writer(self, generation: int) -> "TopicView":
        return TopicView(
            shared_ledger(self._client, self._topic),
            view=self.view,
            key=self._key,
            generation=generation,
            place=self.place,
            partitions=self._partitions or BROKERS_DEFAULT,
        )

    def reader(self, generation: int | None = None) -> TopicReads:
        return TopicReads(self._client, self._topic, view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        notes = read_notes(self._client, self._topic)
        served = notes.book.served
        return [
            notes.kept[number].state.generation(number, is_served=number == served)
            for number in notes.book.born
        ]

    def serve(self, generation: int) -> None:
        self._change(lambda book: book.rolled_back(self.view, generation))

    def drop(self, generation: int | None = None) -> None:
        if generation is not None:
            self._change(lambda book: book.without(self.view, generation))
        elif self.generations():
            self._change(lambda book: book.emptied())

    def _change(self, after: Callable[[ViewBook], ViewBook]) -> None:
        with lent_ledger(self._client, self._topic) as ledger:
            ledger.take_over()
            ledger.settled(
                lambda notes: after(notes.book), lambda: turn(ledger, after(ledger.notes.book))
            )


class TopicView:
    """What a job writes a view with. One caller at a time."""

    def __init__(
        self,
        ledger: TopicLedger,
        *,
        view: str,
        key: Sequence[str],
        generation: int,
        place: str,
        partitions: int,
    ) -> None:
        self.view, self.generation, self._place = view, generation, place
        self._ledger, self._key, self._partitions = ledger, tuple(key), partitions
        self._layout: TableLayout | None = None
        self._job, self._epoch, self._is_open = "", 0, True

    def claim(self, job: str, columns: Schema) -> int:
        wanted = view_layout(self.view, columns, self._key)
        require_json(wanted)

        def claimed(notes: TopicNotes) -> tuple[ViewBook, KeptGeneration]:
            book = notes.book.claimed(job, self.generation, place=self._place)
            return book, _claimed(notes.kept.get(self.generation), wanted, book.epoch)

        self._ledger.take_over()
        self._ledger.settled(claimed, lambda: self._claim(*claimed(self._ledger.notes)))
        self._job, self._epoch = job, self._ledger.notes.book.epoch
        self._layout = wanted
        return self._epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout = self._fitting(changes)
        return self._ledger.settled(
            lambda notes: self._is_due(notes, receipt),
            lambda: self._write(receipt, layout, changes),
        )

    def serve(self, *, epoch: int | None = None) -> None:
        """Let readers see this generation, and keep the one they saw; the others go."""

        def serving(notes: TopicNotes) -> ViewBook:
            if self.generation not in notes.kept:
                raise ClaimLost(place=self._place)
            return notes.book.serving(self.generation, job=self._job, epoch=epoch or self._epoch)

        self._ledger.settled(serving, lambda: turn(self._ledger, serving(self._ledger.notes)))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            release(self._ledger)

    def _claim(self, book: ViewBook, kept: KeptGeneration) -> None:
        if self.generation not in self._ledger.notes.kept:
            self._make_topic(is_served=book.served == self.generation)
        self._ledger.commit([], lambda _: [note_of_book(book), note_of(self.generation, kept)])

    def _make_topic(self, *, is_served: bool) -> None:
        ledger, partitions = self._ledger, self._partitions
        topic = ledger.topic if is_served else ledger.parked(self.generation)
        there = ledger.topics.partitions()
        if is_served and topic in there and any(ledger.ends_of(topic).values()):
            raise TopicOfOthers(view=self.view, topic=topic)
        if not is_served:
            ledger.topics.remove(topic)  # left by one that was dropped
            partitions = there[ledger.topic]
        holds = f"rows of view {self.view}"
        ledger.topics.ensure(topic, partitions=partitions, config=COMPACTED, holds=holds)

    def _fitting(self, changes: pa.Table) -> TableLayout:
        if self._layout is None:
            raise BadView(f"view {self.view} is written without a claim")
        require_fitting(self._layout, changes.schema)
        return self._layout

    def _is_due(self, notes: TopicNotes, receipt: BatchReceipt) -> bool:
        require_newest(receipt.job, receipt.epoch, claimed=notes.book.epoch)
        kept = notes.kept.get(self.generation)
        if kept is None and receipt.batch > 0:
            raise RowsLost(view=self.view, place=self._place, batch=receipt.batch)
        if kept is None:
            raise ClaimLost(place=self._place)
        return is_due(receipt, kept.state.receipt, view=self.view, place=self._place)

    def _write(self, receipt: BatchReceipt, layout: TableLayout, changes: pa.Table) -> bool:
        if not self._is_due(self._ledger.notes, receipt):
            return False
        kept = self._ledger.notes.kept[self.generation]
        topic = self._ledger.rows_topic(self.generation)
        after = replace(kept, state=kept.state.after(receipt))

        def notes(delivered: Delivered) -> list[Note]:
            return [note_of(self.generation, after.extended(delivered.get(topic, {})))]

        rows = list(changes_of(topic, layout, netted_table(layout, changes)))
        if receipt.batch == 0:  # a job whose directory was removed starts over
            rows = [*self._goodbyes(topic, rows), *rows]
        self._ledger.commit(rows, notes)
        return True

    def _goodbyes(self, topic: str, rows: Sequence[Change]) -> Iterator[Change]:
        """Tombstones for what is there, and will not be replaced."""
        coming = {key for _, key, _ in rows}
        there = self._ledger.rows(self.generation)
        return ((topic, key, None) for key in there if key not in coming)


def turn(ledger: TopicLedger, book: ViewBook) -> None:
    """Change which generations there are, and which one the topic holds."""
    was, now = ledger.notes.book.served, book.served
    gone = [number for number in ledger.notes.book.born if number not in book.born]
    changes, moved = _exchange(ledger, was, now) if now and was and now != was else ([], None)

    def notes(delivered: Delivered) -> list[Note]:
        made = [note_of_book(book), *(note_of(number, None) for number in gone)]
        return made if moved is None else [*made, *moved(delivered)]

    ledger.commit(changes, notes)
    left = [ledger.parked(number) for number in gone]
    if moved is not None and now is not None:
        left.append(ledger.parked(now))
    if now is None:
        left.append(ledger.topic)
    ledger.topics.remove(*left)


def _exchange(
    ledger: TopicLedger, was: int, now: int
) -> tuple[list[Change], Callable[[Delivered], list[Note]]]:
    """The rows of `now` into the view's topic, those of `was` out of it."""
    parked = ledger.parked(was)
    partitions = ledger.topics.partitions()[ledger.topic]
    holds = f"rows of generation {was} of the view in {ledger.topic}"
    ledger.topics.ensure(parked, partitions=partitions, config=COMPACTED, holds=holds)
    parked_ends = ledger.ends_of(parked)
    shown, wanted = ledger.rows(was), ledger.rows(now)
    changes = [
        *difference(parked, ledger.rows_in(parked, parked_ends), shown),
        *difference(ledger.topic, shown, wanted),
    ]
    before, after = ledger.notes.kept[was], ledger.notes.kept[now]

    def notes(delivered: Delivered) -> list[Note]:
        aside = replace(before, ends=parked_ends).extended(delivered.get(parked, {}))
        shown = replace(after, ends=before.ends).extended(delivered.get(ledger.topic, {}))
        return [note_of(was, aside), note_of(now, shown)]

    return changes, notes


def _claimed(kept: KeptGeneration | None, wanted: TableLayout, epoch: int) -> KeptGeneration:
    if kept is None:
        return KeptGeneration(GenerationState(key=wanted.key, schema=wanted.schema, epoch=epoch))
    grown = grown_layout(kept.state.layout(wanted.view), wanted)
    return replace(kept, state=replace(kept.state, schema=grown.schema, epoch=epoch))


def require_json(layout: TableLayout) -> None:
    for field in layout.schema:
        try:
            JsonEncoder(Struct((Field(field.name, field.type),)))
        except BadSchema as error:
            raise BadView(
                f"view {layout.view}: {field.name} cannot be kept in a topic: {error}"
            ) from None


def changes_of(topic: str, layout: TableLayout, netted: NettedTable) -> Iterator[Change]:
    keys, values = StoredKeys(layout), JsonEncoder(layout.schema)
    for row in netted.deletes.to_pylist():
        yield topic, keys.text(row), None
    for row in netted.upserts.to_pylist(maps_as_pydicts="strict"):
        yield topic, keys.text(row), values.encode(row)
