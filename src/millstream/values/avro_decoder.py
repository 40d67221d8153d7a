"""Avro values to columns, row by row with fastavro.

A value says nothing of its schema: it is the `writer`, or the one that a header names. The
writer's fields become those of our schema by name: what is not there is null, what is not wanted is
passed over, and a type may be wider than it was written.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.base.schema import BadSchema
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.avro_schema import schema_from_avro, schema_to_avro
from millstream.schemas.declaration import Declared, schema_of
from millstream.schemas.library_missing import LibraryMissing
from millstream.values.confluent_frame import unframe
from millstream.values.decoder import Decoded
from millstream.values.row_columns import Row
from millstream.values.row_decoding import decode_rows
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit

try:
    import fastavro
except ModuleNotFoundError:
    raise LibraryMissing(library="fastavro", extra="avro") from None
# Avro's own JSON, as text or read.
AvroSchema = str | Mapping[str, Any]
# What fastavro raises on bytes that are not of the schema.
READ_ERRORS = (
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


class AvroDecoder:
    """`writer` is the schema of bare values; `writers` finds the one that a header's id names.

    With neither, values are bare and were written with our schema's own Avro form.
    """

    def __init__(
        self,
        schema: Declared | None = None,
        *,
        writer: AvroSchema | None = None,
        writers: Callable[[int], AvroSchema | None] | None = None,
    ) -> None:
        if schema is None and writer is None:
            raise BadSchema("an Avro decoder needs a schema: declare one, or give the writer's")
        self.schema = schema_from_avro(writer or {}) if schema is None else schema_of(schema)
        self.arrow_schema = nullable_arrow_schema(self.schema)
        self._writer_given, self._writers = writer, writers
        self._writer = None if writers else _parsed(writer or schema_to_avro(self.schema))
        self._known: dict[int, Any] = {}
        self._fit = row_fitter(self.schema, passes_over_extra=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        made = partial(AvroDecoder, writer=self._writer_given, writers=self._writers)
        return made, (self.schema,)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return decode_rows(values, self._row, self.arrow_schema)

    def _row(self, value: bytes) -> Row:
        writer, content = self._writer, value
        if writer is None:
            schema_id, content = unframe(value)
            writer = self._writer_with(schema_id)
        return self._fit(_read(content, writer))

    def _writer_with(self, schema_id: int) -> Any:
        if schema_id not in self._known:
            assert self._writers is not None
            found = self._writers(schema_id)
            if found is None:
                raise Unfit(f"no schema has the id {schema_id}, which the header names")
            self._known[schema_id] = _parsed(found)
        return self._known[schema_id]


def _parsed(avro: AvroSchema) -> Any:
    try:
        return fastavro.parse_schema(json.loads(avro) if isinstance(avro, str) else dict(avro))
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise BadSchema(f"not a schema of Avro: {type(error).__name__}: {error}") from None


def _read(content: bytes, writer: Any) -> Any:
    stream = io.BytesIO(content)
    try:
        record = fastavro.schemaless_reader(stream, writer, None)
    except READ_ERRORS as error:
        raise Unfit(f"not Avro of its schema: {type(error).__name__} {error}".rstrip()) from None
    left = len(content) - stream.tell()
    if left:
        raise Unfit(f"not Avro of its schema: {left} bytes are left over")
    return record
