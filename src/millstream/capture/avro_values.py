"""Envelopes in Avro: the same fields as in JSON, with the columns' own types, and before each value
the header that names its schema (docs/formats/values.md). Keys stay JSON.

A value is made from the envelope in JSON, by the schema that its table declares: many at once, as
the price is in the calls. Schemas are kept in `_schemas`, under the topic's name.
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.base.errors import Corrupt
from millstream.base.log_clients import Client
from millstream.base.schema import Field, ListOf, MapOf, Scalar, Schema, Struct
from millstream.capture.change import CapturedTable
from millstream.schemas.compatibility import IncompatibleSchema
from millstream.schemas.schema_topic import SchemaTopic
from millstream.values.avro_encoder import AvroEncoder
from millstream.values.json_decoder import JsonDecoder
from millstream.values.json_rows import JsonRows
from millstream.values.unfit import Unfit

SOURCE = Struct(
    (
        Field("version", Scalar.STRING),
        Field("connector", Scalar.STRING),
        Field("name", Scalar.STRING),
        Field("db", Scalar.STRING),
        Field("schema", Scalar.STRING),
        Field("table", Scalar.STRING),
        Field("schema_version", Scalar.INT),
        Field("ts_ms", Scalar.BIGINT),
        Field("txId", Scalar.STRING),
        Field("commit", Scalar.STRING),
        Field("lsn", Scalar.BIGINT),
        Field("seq", Scalar.BIGINT),
    )
)


class UnfitRow(Corrupt):
    def __init__(self, *, table: str, reason: str) -> None:
        super().__init__(
            f"a row of {table} is not what its columns say ({reason}): it cannot be Avro. Tell us, "
            "and capture the table as JSON meanwhile"
        )
        self.table, self.reason = table, reason


def envelope_schema(table: CapturedTable) -> Schema:
    """Any column may be missing: of a row before, and when the database did not send it."""
    row = Struct(tuple(Field(column.name, column.type) for column in table.columns))
    return Struct(
        (
            Field("before", row),
            Field("after", row),
            Field("source", SOURCE),
            Field("op", Scalar.STRING),
            Field("ts_ms", Scalar.BIGINT),
            Field("unavailable", ListOf(Scalar.STRING)),
        )
    )


def with_unfit(envelope: Schema) -> Schema:
    """`unfit`: by "after.born", what its type cannot hold, as text; it is null in the row."""
    return Struct((*envelope, Field("unfit", MapOf(Scalar.STRING, Scalar.STRING))))


class AvroValues:
    """Of one version of a table; `schema_id` names its schema."""

    def __init__(self, table: CapturedTable, *, schema_id: int | None = None) -> None:
        self._table = table.name
        schema = envelope_schema(table)
        self._decoder = JsonDecoder(schema)
        self._encoder = AvroEncoder(with_unfit(schema), schema_id=schema_id)
        self._columns = {
            column.name: JsonRows(Struct((Field(column.name, column.type),)))
            for column in table.columns
        }

    def encode(self, envelopes: Sequence[bytes]) -> list[bytes]:
        """Each envelope in JSON as one in Avro."""
        decoded = self._decoder.decode(pa.array(envelopes, pa.binary()))
        rows = [row | {"unfit": None} for row in decoded.batch.to_pylist()]
        for bad in decoded.bad:
            rows[bad.row] = self._without_unfit(envelopes[bad.row])
        return [self._encoder.encode(row) for row in rows]

    def _without_unfit(self, envelope: bytes) -> dict[str, Any]:
        """What its column's type cannot hold (a date BC, an array of arrays) goes aside as text:
        a value that is right in the database must not stop the capture."""
        document, unfit = json.loads(envelope), {}
        for part in ("before", "after"):
            row = document.get(part) or {}
            for name, value in row.items():
                if name in self._columns and not self._fits(name, value):
                    unfit[f"{part}.{name}"] = value if isinstance(value, str) else json.dumps(value)
                    row[name] = None
        decoded = self._decoder.decode(pa.array([json.dumps(document).encode()], pa.binary()))
        for bad in decoded.bad:
            raise UnfitRow(table=self._table, reason=bad.reason)
        found: dict[str, Any] = decoded.batch.to_pylist()[0]
        return found | {"unfit": unfit}

    def _fits(self, name: str, value: Any) -> bool:
        try:
            self._columns[name].row(json.dumps({name: value}).encode())
        except Unfit:
            return False
        return True


class AvroSchemas:
    """Registers the schemas of tables, and makes their encoders."""

    def __init__(self, client: Client) -> None:
        self._schemas = SchemaTopic(client)

    def values_of(self, table: CapturedTable) -> AvroValues:
        return AvroValues(table, schema_id=self._id_of(table))

    def close(self) -> None:
        self._schemas.close()

    def _id_of(self, table: CapturedTable) -> int:
        """A database changes its columns as it likes: what cannot follow begins anew."""
        schema = with_unfit(envelope_schema(table))
        try:
            return self._schemas.register(table.topic, schema, encoding="avro").id
        except IncompatibleSchema:
            return self._schemas.register(table.topic, schema, encoding="avro", begins_anew=True).id
