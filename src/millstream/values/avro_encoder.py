"""Rows to Avro, with fastavro: bare, or with the header that names the schema."""

import io
from functools import partial
from typing import Any

from millstream.schemas.avro_schema import schema_to_avro
from millstream.schemas.declaration import Declared, schema_of
from millstream.schemas.library_missing import LibraryMissing
from millstream.values.confluent_frame import frame
from millstream.values.row_fitting import row_fitter

try:
    import fastavro
except ModuleNotFoundError:
    raise LibraryMissing(library="fastavro", extra="avro") from None


class AvroEncoder:
    """`schema_id` is that of `avro_schema`, for the header; without one there is no header."""

    def __init__(self, schema: Declared, *, schema_id: int | None = None) -> None:
        self.schema = schema_of(schema)
        self.avro_schema = schema_to_avro(self.schema)
        self._schema_id = schema_id
        self._parsed = fastavro.parse_schema(self.avro_schema)
        self._fit = row_fitter(self.schema, passes_over_extra=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return partial(AvroEncoder, schema_id=self._schema_id), (self.schema,)

    def encode(self, row: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, self._fit(row))
        content = stream.getvalue()
        return content if self._schema_id is None else frame(self._schema_id, content)
