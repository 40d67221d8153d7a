"""Rows as records of a topic: key and value, by the topic's schema.

An upsert is its row; a delete is a tombstone, a key without a value. An insert or a retract is a
whole row that says so in its field `_change`: JSON writes it of its own accord, another encoding
needs it in the schema. A schema that has `_change` gets it of every row. `_order` is not written:
the log has an order.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.base.changes import CHANGE, DELETE, INSERT, ORDER, RETRACT
from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.errors import Rejected
from millstream.base.schema import Field, Scalar, Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema, schema_from_arrow
from millstream.schemas.compatibility import changes_against
from millstream.values.encoder import Encoder
from millstream.values.encoding import encoder_for
from millstream.values.key_encoder import KeyEncoder
from millstream.values.row_fitting import as_mapping
from millstream.values.unfit import Unfit

RECORD = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
SHOWN_LENGTH_MAX = 500


class RowsDoNotFit(Rejected):
    """The columns of a job are not those of the topic that it writes."""

    def __init__(self, *, topic: str, problems: Iterable[str]) -> None:
        super().__init__(
            f"the rows do not fit topic {topic}: {'; '.join(problems)}. Select and cast the "
            "columns, or change the topic's schema"
        )
        self.topic = topic


class BadRow(Rejected):
    """One row cannot be written."""

    def __init__(self, *, topic: str, row: Mapping[str, Any], problem: str) -> None:
        shown = repr(dict(row))[:SHOWN_LENGTH_MAX]
        super().__init__(f"topic {topic}: the row {shown} cannot be written: {problem}")
        self.topic, self.row, self.problem = topic, row, problem


@dataclass(frozen=True)
class RowRecords:
    """What makes records of rows. Goes to Spark's workers."""

    topic: str
    key: KeyEncoder | None
    plain: Encoder
    changing: Encoder | None  # for an insert or a retract, if `plain` cannot tell
    tells_change: bool = False

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self.records, batches)

    def records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist(maps_as_pydicts="strict")
        pairs = [self.record(row) for row in rows]
        columns = [
            pa.array([key for key, _ in pairs], pa.binary()),
            pa.array([value for _, value in pairs], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD)

    def record(self, given: Any) -> tuple[bytes | None, bytes | None]:
        """Of a mapping, a dataclass or a pydantic model."""
        try:
            row = dict(as_mapping(given))
        except Unfit as error:
            raise BadRow(topic=self.topic, row={}, problem=str(error)) from None
        change = row.pop(CHANGE, None)
        row.pop(ORDER, None)
        try:
            key = self.key.encode(row) if self.key is not None else None
            return key, self._value(change, key, row)
        except Unfit as error:
            raise BadRow(topic=self.topic, row=row, problem=str(error)) from None

    def _value(self, change: str | None, key: bytes | None, row: dict[str, Any]) -> bytes | None:
        if change == DELETE:
            if key is None:
                problem = "it deletes, and has no key"
                raise BadRow(topic=self.topic, row=row, problem=problem)
            return None
        if self.tells_change:
            return self.plain.encode(row | {CHANGE: change})
        if change not in (INSERT, RETRACT):
            return self.plain.encode(row)
        if self.changing is None:
            problem = f"it is a {change}, and the topic's schema has no field {CHANGE}"
            raise BadRow(topic=self.topic, row=row, problem=problem)
        return self.changing.encode(row | {CHANGE: change})


def records_for_columns(output: DeclaredTopic | DeclaredTable, columns: Schema) -> RowRecords:
    """For rows of these columns into this topic; a topic without a schema takes them all."""
    if output.schema is None:
        return row_records(output, value_schema(columns))
    _require_fit(output.name, value_schema(columns), output.schema)
    return row_records(output, output.schema)


def row_records(output: DeclaredTopic | DeclaredTable, schema: Schema) -> RowRecords:
    return RowRecords(
        topic=output.name,
        key=KeyEncoder(schema, output.key) if output.key else None,
        plain=encoder_for(output, schema),
        changing=_changing(output, schema),
        tells_change=schema.field(CHANGE) is not None,
    )


def value_schema(columns: Schema) -> Schema:
    """The columns that are the row's own. What may be null is not told by a frame."""
    own = Struct(tuple(field for field in columns if field.name not in (CHANGE, ORDER)))
    return schema_from_arrow(nullable_arrow_schema(own))


def _changing(output: DeclaredTopic | DeclaredTable, schema: Schema) -> Encoder | None:
    if output.encoding != "json" or schema.field(CHANGE) is not None:
        return None
    changing = Struct((*schema.fields, Field(CHANGE, Scalar.STRING)))
    return encoder_for(output, changing)


def _require_fit(topic: str, columns: Schema, schema: Schema) -> None:
    """Every column is a field, and of a type that the field can hold."""
    wanted = schema_from_arrow(nullable_arrow_schema(schema))
    found = changes_against(columns, wanted)
    if found:
        problems = [
            f"column {one.path} is {one.old}, the schema has "
            + ("no such field" if one.new == "gone" else one.new)
            for one in found
        ]
        raise RowsDoNotFit(topic=topic, problems=problems)
