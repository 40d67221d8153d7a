"""Keys, envelopes and boundaries of transactions as Debezium 3.6 writes them. Pure.

    {"before":null,"after":{"id":1},"source":{"version":...,"snapshot":"false","sequence":...},
     "transaction":{"id":"731:22900544","total_order":1,"data_collection_order":1},
     "op":"c","ts_ms":...,"ts_us":...,"ts_ns":...}

With schemas each part is {"schema": ..., "payload": ...}, as Kafka Connect's JsonConverter has it.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream._version import __version__
from millstream.capture.change import (
    CapturedTable,
    Change,
    Message,
    PlacedChange,
    Transaction,
)
from millstream.capture.debezium.values import Modes, form_of, unavailable
from millstream.capture.envelope import Encoded, Place
from millstream.capture.table_names import split_name

Json = Any
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Order(NamedTuple):
    """Of a change in its transaction, and among those of its table; from 1 on."""

    total: int
    in_table: int


class DebeziumRecords:
    """Of one capture."""

    def __init__(self, *, name: str, database: str, modes: Modes, has_schemas: bool) -> None:
        self.name, self.database = name, database
        self.modes, self.has_schemas = modes, has_schemas

    def table(self, table: CapturedTable) -> "DebeziumTable":
        return DebeziumTable(table, self)

    def encoded(self, schema: Json, payload: Json) -> bytes:
        found = {"schema": schema, "payload": payload} if self.has_schemas else payload
        return _encode(found).encode()

    def begin_of(self, transaction: Transaction, first: Change | Message) -> Encoded:
        """`first`: of its changes, as Debezium says where that is."""
        return self._boundary(transaction, "BEGIN", lsn_in(first, transaction.commit), None)

    def end_of(self, transaction: Transaction, counts: Mapping[str, int]) -> Encoded:
        return self._boundary(transaction, "END", lsn_of(transaction.resume), counts)

    def _boundary(
        self,
        transaction: Transaction,
        status: str,
        lsn: int | None,
        counts: Mapping[str, int] | None,
    ) -> Encoded:
        about = {"id": f"{transaction.id}:{lsn}"}
        tables = [{"data_collection": one, "event_count": many} for one, many in counted(counts)]
        payload = {
            "status": status,
            **about,
            "event_count": None if counts is None else sum(counts.values()),
            "data_collections": None if counts is None else tables,
            "ts_ms": transaction.at_ms,
        }
        return Encoded(
            self.encoded(BOUNDARY_KEY_SCHEMA, about), self.encoded(BOUNDARY_SCHEMA, payload)
        )


def counted(counts: Mapping[str, int] | None) -> list[tuple[str, int]]:
    return list((counts or {}).items())


class DebeziumTable:
    """One version of a table: how its rows are written, and what is the same in all records."""

    def __init__(self, table: CapturedTable, records: DebeziumRecords) -> None:
        self._records, self._key = records, table.key
        self._forms = {column.name: form_of(column, records.modes) for column in table.columns}
        self._schema_name, self._table_name = split_name(table.name)
        fields = [
            {**form.schema, "optional": name not in table.key, "field": name}
            for name, form in self._forms.items()
        ]
        by_name = {one["field"]: one for one in fields}
        self._key_schema = _struct([by_name[name] for name in table.key], f"{table.topic}.Key")
        self._value_schema = envelope_schema(table.topic, fields)

    def topic_key(self, key: bytes) -> bytes:
        """Of the key of a change, in our form."""
        return self._records.encoded(self._key_schema, self._converted(json.loads(key)))

    def value(
        self, change: Change, place: Place, last_end: int | None, order: Order | None
    ) -> bytes:
        before = self._row(change.before)
        if change.op == "d" and before is None and change.key is not None:
            before = self._whole(self._converted(json.loads(change.key)))
        lsn = lsn_in(change, place.commit)
        return self._encoded(change.op, before, self._after(change), place, lsn, last_end, order)

    def swept(self, topic_key: bytes, place: Place) -> bytes:
        """A delete of a key that was found in the topic, and is in its form already."""
        found = json.loads(topic_key)
        key = found["payload"] if self._records.has_schemas else found
        lsn = lsn_of(place.commit)
        return self._encoded("d", self._whole(key), None, place, lsn, None, None)

    def _encoded(
        self,
        op: str,
        before: Json,
        after: Json,
        place: Place,
        lsn: int | None,
        last_end: int | None,
        order: Order | None,
    ) -> bytes:
        block = None
        if order is not None and place.transaction_id is not None:
            block = {
                "id": f"{place.transaction_id}:{lsn}",
                "total_order": order.total,
                "data_collection_order": order.in_table,
            }
        payload = {
            "before": before,
            "after": after,
            "source": self._source(place, lsn, last_end),
            "transaction": block,
            "op": op,
            "ts_ms": place.read_ms,
            "ts_us": place.read_ms * 1_000,
            "ts_ns": place.read_ms * 1_000_000,
        }
        return self._records.encoded(self._value_schema, payload)

    def _source(self, place: Place, lsn: int | None, last_end: int | None) -> dict[str, Json]:
        is_loaded = place.transaction_id is None
        sequence = [None if last_end is None else str(last_end), None if lsn is None else str(lsn)]
        return {
            "version": __version__,
            "connector": "postgresql",
            "name": self._records.name,
            "ts_ms": place.at_us // 1_000,
            "snapshot": "incremental" if is_loaded else "false",
            "db": self._records.database,
            "sequence": _encode(sequence),
            "ts_us": place.at_us,
            "ts_ns": place.at_us * 1_000,
            "schema": self._schema_name,
            "table": self._table_name,
            "txId": None if is_loaded else _number(place.transaction_id),
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }

    def _after(self, change: Change) -> Json:
        row = self._row(change.after)
        if row is not None:
            for name in change.unavailable:
                row[name] = unavailable(self._forms[name].schema)
        return row

    def _row(self, text: bytes | None) -> dict[str, Json] | None:
        return None if text is None else self._whole(self._converted(json.loads(text)))

    def _whole(self, row: Mapping[str, Json]) -> dict[str, Json]:
        """With every column, also those of which nothing is known."""
        return {name: row.get(name) for name in self._forms}

    def _converted(self, row: Mapping[str, Json]) -> dict[str, Json]:
        return {
            name: None if value is None else self._forms[name].convert(value)
            for name, value in row.items()
        }


def lsn_in(change: Change | Message, commit: str) -> int | None:
    """Of a change; that of its commit, where the change itself does not say."""
    return change.lsn if isinstance(change, PlacedChange) else lsn_of(commit)


def lsn_of(position: str) -> int | None:
    """0/15D6F40 as a number; None: this source has other positions."""
    high, slash, low = position.partition("/")
    return (int(high, 16) << 32) + int(low, 16) if slash else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# --- schemas -----------------------------------------------------------------------------------


def _struct(fields: list[Json], name: str, **more: Json) -> dict[str, Json]:
    return {"type": "struct", "fields": fields, "optional": False, "name": name, **more}


def _field(name: str, kind: str, *, optional: bool = False) -> dict[str, Json]:
    return {"type": kind, "optional": optional, "field": name}


SNAPSHOT = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {
        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,"
        "incremental"
    },
    "default": "false",
    "field": "snapshot",
}
SOURCE = [
    *(_field(name, "string") for name in ("version", "connector", "name")),
    _field("ts_ms", "int64"),
    SNAPSHOT,
    _field("db", "string"),
    _field("sequence", "string", optional=True),
    *(_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")),
    *(_field(name, "string") for name in ("schema", "table")),
    *(_field(name, "int64", optional=True) for name in ("txId", "lsn", "xmin")),
    _field("origin", "string", optional=True),
    _field("origin_lsn", "int64", optional=True),
]
BLOCK = [
    _field("id", "string"),
    _field("total_order", "int64"),
    _field("data_collection_order", "int64"),
]
COLLECTION = {
    **_struct(
        [_field("data_collection", "string"), _field("event_count", "int64")], "event.collection"
    ),
    "optional": True,
    "version": 1,
}
METADATA = "io.debezium.connector.common.TransactionMetadata"
BOUNDARY_KEY_SCHEMA = _struct([_field("id", "string")], f"{METADATA}Key", version=1)
BOUNDARY_SCHEMA = _struct(
    [
        *(_field(name, "string") for name in ("status", "id")),
        _field("event_count", "int64", optional=True),
        {"type": "array", "items": COLLECTION, "optional": True, "field": "data_collections"},
        _field("ts_ms", "int64"),
    ],
    f"{METADATA}Value",
    version=1,
)


def envelope_schema(topic: str, row: list[Json]) -> dict[str, Json]:
    source = {**_struct(SOURCE, "io.debezium.connector.postgresql.Source"), "version": 1}
    fields = [
        *(
            {**_struct(row, f"{topic}.Value"), "optional": True, "field": name}
            for name in ("before", "after")
        ),
        {**source, "field": "source"},
        {**_struct(BLOCK, "event.block"), "optional": True, "version": 1, "field": "transaction"},
        _field("op", "string"),
        *(_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _struct(fields, f"{topic}.Envelope", version=2)
