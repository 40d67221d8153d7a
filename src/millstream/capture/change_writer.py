"""Changes into topics: each to the one of its table, with its tombstone, its place and its version.

Between the source and the log: the envelope is made here, and a topic when a table first comes.
Does not commit: what it puts belongs to the transaction that is open, and the schemas of new
versions too (`take_notes`).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millstream.base.clock import Clock
from millstream.base.errors import Rejected
from millstream.capture.change import (
    DELETED,
    TRUNCATED,
    CapturedTable,
    Change,
    Message,
    Transaction,
)
from millstream.capture.debezium.records import DebeziumRecords, DebeziumTable, Order, lsn_of
from millstream.capture.definition import CaptureDefinition
from millstream.capture.envelope import (
    Encoded,
    Envelope,
    Place,
    begin_of,
    end_of,
    facts_at,
    has_tombstone,
    key_of,
    place_of,
    value_of,
)
from millstream.capture.log_writer import LogWriter
from millstream.capture.outbox import NotRoutable, event_from_message, event_from_row, is_event
from millstream.capture.position_record import Note, schema_note
from millstream.capture.table_versions import TableVersions

if TYPE_CHECKING:
    from millstream.capture.avro_values import AvroSchemas, AvroValues

logger = logging.getLogger(__name__)


class OwnBoundaries:
    """Those of envelope.py, as `DebeziumRecords` offers its own."""

    def begin_of(self, transaction: Transaction, _first: Change | Message) -> Encoded:
        return begin_of(transaction)

    def end_of(self, transaction: Transaction, counts: Mapping[str, int]) -> Encoded:
        return end_of(transaction, counts)


OWN_BOUNDARIES = OwnBoundaries()
# What waits to be encoded together: then the price of a call is shared.
AVRO_RECORDS_MAX = 1_000


class KeyLost(Rejected):
    def __init__(self, *, capture: str, table: CapturedTable) -> None:
        super().__init__(
            f"{table.name} (capture {capture}) has lost its primary key, and its topic "
            f"{table.topic} is compacted: it takes no record without a key. Give the table its key "
            f"back, then `millstream capture reload {capture}`; or begin anew without one: "
            f"{beginning_anew(capture, table)}"
        )
        self.capture, self.table = capture, table.name


class KeyGained(Rejected):
    def __init__(self, *, capture: str, table: CapturedTable) -> None:
        super().__init__(
            f"{table.name} (capture {capture}) has a primary key now, and its topic {table.topic} "
            "was made without one: rows there have no keys, and it is not compacted. Begin anew "
            f"with it: {beginning_anew(capture, table)}"
        )
        self.capture, self.table = capture, table.name


class KeyMoved(Rejected):
    """Records are known by their keys: those of the old one would stay, beside the new."""

    def __init__(self, *, capture: str, table: CapturedTable, former: tuple[str, ...]) -> None:
        super().__init__(
            f"{table.name} (capture {capture}) had the key ({', '.join(former)}) and has "
            f"({', '.join(table.key)}) now: its topic {table.topic} would hold each row twice. "
            f"Begin anew: {beginning_anew(capture, table)}; or give the table its key back, "
            f"and then `millstream capture reload {capture}`"
        )
        self.capture, self.table, self.former = capture, table.name, former


class TopicShared(Rejected):
    def __init__(self, *, capture: str, topic: str, tables: tuple[str, str]) -> None:
        super().__init__(
            f"{' and '.join(tables)} (capture {capture}) would both be written to {topic}: rows of "
            "one would replace rows of the other. Capture one of them under another name: "
            "`millstream capture add NAME URL --table TABLE`"
        )
        self.capture, self.topic, self.tables = capture, topic, tables


def beginning_anew(capture: str, table: CapturedTable) -> str:
    """The commands by which its topic is made again."""
    return (
        f"`millstream capture drop {capture}`, `millstream topics delete {table.topic}`, and "
        f"`millstream capture add {capture} URL --table NAME` as before"
    )


class KnownTable(NamedTuple):
    """One version of a table, with what all its records have in common."""

    given: CapturedTable  # kept, so that no other table gets its identity
    table: CapturedTable
    topic: str
    source: bytes
    is_outbox: bool
    avro: "AvroValues | None"
    debezium: DebeziumTable | None = None


class Waiting(NamedTuple):
    """A record whose envelope is to be Avro; a tombstone waits for its turn."""

    known: KnownTable
    key: bytes | None
    envelope: bytes | None
    is_everywhere: bool = False


class ChangeWriter:
    """Of one run; `known` are the versions of former ones."""

    def __init__(
        self,
        definition: CaptureDefinition,
        envelope: Envelope,
        writer: LogWriter,
        *,
        known: Iterable[CapturedTable],
        now_ms: Clock,
        avro: "AvroSchemas | None" = None,
        debezium: DebeziumRecords | None = None,
    ) -> None:
        self._definition, self._envelope, self._writer = definition, envelope, writer
        self._debezium = debezium
        self._last_end: int | None = None  # of the transaction before, as Debezium tells it
        self._orders: dict[str, int] = {}  # changes of each table in this transaction
        self._now_ms, self._avro = now_ms, avro
        self._waiting: list[Waiting] = []
        noted = list(known)
        self._noted = {(table.name, table.version) for table in noted}
        self._versions = TableVersions(noted)
        self._table_of_topic: dict[str, str] = {}
        self._keys = {table.name: table.key for table in noted}
        self._tables: dict[int, KnownTable] = {}
        self._notes: list[Note] = []
        self._outbox_keys: dict[CapturedTable, list[bytes]] = {}
        self._has_boundaries_topic = False

    def write_transaction(
        self, transaction: Transaction, changes: Iterable[Change | Message], *, read_ms: int
    ) -> int:
        """How many changes it had."""
        place = place_of(transaction, read_ms=read_ms)
        self._orders = {}
        count = (
            self._write_between_boundaries(transaction, changes, place)
            if self._definition.has_boundaries
            else self._write_all(changes, place)
        )
        if self._debezium is not None:
            self._last_end = lsn_of(transaction.resume)
        return count

    def _write_all(self, changes: Iterable[Change | Message], place: Place) -> int:
        write, seq = self._write, -1
        for seq, change in enumerate(changes):
            write(change, place, seq)
        return seq + 1

    def _write_between_boundaries(
        self, transaction: Transaction, changes: Iterable[Change | Message], place: Place
    ) -> int:
        topic, counts, seq = self._definition.transactions_topic, self._orders, -1
        words = self._debezium or OWN_BOUNDARIES
        for seq, change in enumerate(changes):
            if not seq:
                self._make_boundaries_topic()
                self._writer.put(topic, *words.begin_of(transaction, change))
            if isinstance(change, Change):
                name = change.table.name
                counts[name] = counts.get(name, 0) + 1
            self._write(change, place, seq)
        if seq >= 0:
            self._writer.put(topic, *words.end_of(transaction, counts))
        return seq + 1

    def write_again(self, change: Change, transaction: Transaction, seq: int) -> None:
        """A change that must follow rows which were loaded after it was written."""
        self._write(change, place_of(transaction, read_ms=self._now_ms()), seq)

    def write_loaded(self, changes: Iterable[Change], position: str) -> int:
        """Rows as they were when the stream was at `position`."""
        now_ms = self._now_ms()
        place = Place(position, at_ms=now_ms, read_ms=now_ms, facts=facts_at(position))
        seq = -1
        for seq, change in enumerate(changes):
            self._write(change, place, seq)
        return seq + 1

    def take_notes(self) -> list[Note]:
        """Schemas that came since, for the same transaction; all that was written is put now."""
        self._put_waiting()
        notes, self._notes = self._notes, []
        return notes

    def flush(self) -> None:
        """Wait until all that was written is in the log, though not committed."""
        self._put_waiting()
        self._writer.flush()

    def take_outbox_keys(self) -> dict[CapturedTable, list[bytes]]:
        """Rows of an outbox that are events, once this transaction is committed."""
        keys, self._outbox_keys = self._outbox_keys, {}
        return keys

    def know(self, table: CapturedTable) -> KnownTable:
        """Its version has a number and a note, its topic is there."""
        known = self._tables.get(id(table))
        if known is None:
            known = self._tables[id(table)] = self._introduced(table)
        return known

    def _introduced(self, given: CapturedTable) -> KnownTable:
        table = self._versions.of(given)
        self._require_keyed_as_before(table)
        self._require_topic_of_its_own(table)
        if (table.name, table.version) not in self._noted:
            self._noted.add((table.name, table.version))
            self._notes.append(schema_note(self._definition.name, table))
        self._writer.make_topic(
            table.topic, is_compacted=bool(table.key), partitions=self._definition.partitions
        )
        is_outbox = self._definition.is_outbox(table.name)
        avro = self._avro.values_of(table) if self._avro and not is_outbox else None
        source = self._envelope.source_of(table)
        debezium = self._debezium.table(table) if self._debezium and not is_outbox else None
        return KnownTable(given, table, table.topic, source, is_outbox, avro, debezium)

    def topic_key(self, table: CapturedTable, key: bytes) -> bytes:
        """The key of a change as it is in the topic."""
        if self._debezium is None:
            return key
        debezium = self.know(table).debezium
        return key if debezium is None else debezium.topic_key(key)

    def _require_keyed_as_before(self, table: CapturedTable) -> None:
        """A topic is of rows with one key, or of rows without."""
        capture, former = self._definition.name, self._keys.setdefault(table.name, table.key)
        if former and table.key and former != table.key:
            raise KeyMoved(capture=capture, table=table, former=former)
        if bool(former) != bool(table.key):
            raise (KeyGained if table.key else KeyLost)(capture=capture, table=table)

    def _require_topic_of_its_own(self, table: CapturedTable) -> None:
        """Names that differ only in what a topic's name cannot have are one there."""
        first = self._table_of_topic.setdefault(table.topic, table.name)
        if first != table.name:
            tables = (first, table.name)
            raise TopicShared(capture=self._definition.name, topic=table.topic, tables=tables)

    def _write(self, change: Change | Message, place: Place, seq: int) -> None:
        if isinstance(change, Message):
            return self._write_message(change, place, seq)
        known = self._tables.get(id(change.table)) or self.know(change.table)
        if known.is_outbox:
            return self._write_event(change)
        if known.debezium is not None:
            return self._write_debezium(known, known.debezium, change, place, seq)
        value = value_of(change, known.source, place, seq)
        if known.avro is not None:
            return self._wait(known, change, key_of(change), value)
        if change.op == TRUNCATED:
            return self._writer.put_everywhere(known.topic, key_of(change), value)
        self._writer.put(known.topic, change.key, value)
        if change.op == DELETED and has_tombstone(change):
            self._writer.put(known.topic, change.key, None)
        return None

    def _write_debezium(
        self, known: KnownTable, debezium: DebeziumTable, change: Change, place: Place, seq: int
    ) -> None:
        if change.op == TRUNCATED:
            if self._definition.has_truncates:
                value = debezium.value(change, place, self._last_end, self._order(known, seq))
                self._writer.put_everywhere(known.topic, key_of(change), value)
            return
        is_swept = change.op == DELETED and place.transaction_id is None
        key: bytes | None
        if is_swept and change.key is not None:  # found in the topic, and in its form
            key, value = change.key, debezium.swept(change.key, place)
        else:
            key = None if change.key is None else debezium.topic_key(change.key)
            value = debezium.value(change, place, self._last_end, self._order(known, seq))
        self._writer.put(known.topic, key, value)
        if has_tombstone(change):
            self._writer.put(known.topic, key, None)

    def _order(self, known: KnownTable, seq: int) -> Order | None:
        if not self._definition.has_boundaries:
            return None
        return Order(seq + 1, self._orders.get(known.table.name, 0))

    def _wait(self, known: KnownTable, change: Change, key: bytes | None, value: bytes) -> None:
        self._waiting.append(Waiting(known, key, value, change.op == TRUNCATED))
        if has_tombstone(change):
            self._waiting.append(Waiting(known, key, None))
        if len(self._waiting) >= AVRO_RECORDS_MAX:
            self._put_waiting()

    def _put_waiting(self) -> None:
        """In their order; those of one table are encoded together."""
        waiting, self._waiting = self._waiting, []
        values = encoded_as_avro(waiting)
        for number, one in enumerate(waiting):
            topic, value = one.known.topic, values.get(number)
            if one.is_everywhere:
                self._writer.put_everywhere(topic, one.key, value)
            else:
                self._writer.put(topic, one.key, value)

    def _write_event(self, change: Change) -> None:
        if not is_event(change):
            return
        event = event_from_row(change)
        if isinstance(event, NotRoutable):
            logger.warning("capture %s: outbox: %s", self._definition.name, event.reason)
            return
        self._writer.make_topic(event.topic)
        self._writer.put(event.topic, event.key, event.value, headers=list(event.headers))
        if change.key is not None:
            self._outbox_keys.setdefault(change.table, []).append(change.key)

    def _write_message(self, message: Message, place: Place, seq: int) -> None:
        event = event_from_message(message)
        if event is not None:
            topic, key, value = event.topic, event.key, event.value
        else:
            topic = self._definition.messages_topic
            key, value = self._envelope.message(message, place, seq)
        self._writer.make_topic(topic)
        self._writer.put(topic, key, value)

    def _make_boundaries_topic(self) -> None:
        if not self._has_boundaries_topic:
            self._writer.make_topic(self._definition.transactions_topic)
            self._has_boundaries_topic = True


def encoded_as_avro(waiting: Sequence[Waiting]) -> dict[int, bytes]:
    """The values by their place; tombstones have none."""
    by_table: dict[int, list[int]] = {}
    for number, one in enumerate(waiting):
        if one.envelope is not None:
            by_table.setdefault(id(one.known), []).append(number)
    values: dict[int, bytes] = {}
    for numbers in by_table.values():
        avro = waiting[numbers[0]].known.avro
        assert avro is not None
        envelopes = [waiting[number].envelope or b"" for number in numbers]
        values.update(zip(numbers, avro.encode(envelopes), strict=True))
    return values
