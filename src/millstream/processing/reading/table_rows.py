"""Records of a changelog topic as changes of a table. Pure; needs pyarrow.

A value is the whole row: an upsert. A null value is a tombstone: a delete, whose key columns come
from the record's key and whose other columns are null. Envelopes say themselves which they are.
`_order` rises with every change of a key: the record's offset, since all records of a key are in
one partition.

A record's key names the row in JSON: {"id": 7} with every key column; of a single column its plain
value too: 7, "ada", or the bare text ada.
"""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.base.schema import INTEGER_BITS, Field, Scalar, Schema, Struct
from millstream.values.decoder import Bad, Decoded
from millstream.values.json_decoder import JsonDecoder

CHANGE_FIELDS = (pa.field(CHANGE, pa.string()), pa.field(ORDER, pa.int64()))
# Types whose plain value is written without quotes.
BARE = {Scalar.BOOLEAN, Scalar.FLOAT, Scalar.DOUBLE, *INTEGER_BITS}


class TableKeys:
    """Reads the key columns from the keys of records."""

    def __init__(self, schema: Schema, key: Sequence[str]) -> None:
        fields = [field for field in schema if field.name in key]
        self._single = fields[0] if len(fields) == 1 else None
        self._decoder = JsonDecoder(Struct(tuple(_required(field) for field in fields)))

    def decode(self, keys: Sequence[bytes | None]) -> Decoded:
        """A row for every key; a key that names no row is bad."""
        decoded = self._decoder.decode(pa.array(map(self._document, keys), pa.binary()))
        return Decoded(
            decoded.batch, [Bad(bad.row, f"its key: {bad.reason}") for bad in decoded.bad]
        )

    def _document(self, key: bytes | None) -> bytes:
        if key is None:
            return b"null"
        if self._single is None or key.lstrip().startswith(b"{"):
            return key
        return b"{%s:%s}" % (json.dumps(self._single.name).encode(), self._plain(self._single, key))

    def _plain(self, field: Field, key: bytes) -> bytes:
        if field.type in BARE or key.startswith(b'"'):
            return key
        try:
            return json.dumps(key.decode()).encode()
        except UnicodeDecodeError:
            return key  # which the decoder refuses, with the reason


def _required(field: Field) -> Field:
    return Field(field.name, field.type, nullable=False)


def table_changes(
    rows: Decoded, keys: Decoded, key: Sequence[str], *, gone: pa.BooleanArray
) -> Decoded:
    """`rows` with the keys of those that are gone filled in, and what each record does to its row.

    `keys` are those of the rows that are gone alone, in order.
    """
    numbers = numbers_where(gone)
    bad = [*rows.bad, *(Bad(numbers[found.row], found.reason) for found in keys.bad)]
    columns = {name: rows.batch.column(name) for name in rows.batch.schema.names}
    for name in key:
        columns[name] = pc.replace_with_mask(columns[name], gone, keys.batch.column(name))
    named = {*numbers_where(rows.passed), *(found.row for found in bad)}
    bad += [one for one in _unnamed(columns, key) if one.row not in named]
    change = pc.if_else(gone, DELETE, UPSERT)
    return Decoded(
        pa.RecordBatch.from_arrays([*columns.values(), change], [*columns, CHANGE]),
        sorted(bad, key=lambda found: found.row),
        passed=rows.passed,
    )


def numbers_where(condition: pa.BooleanArray | None) -> list[int]:
    found: list[int] = [] if condition is None else pc.indices_nonzero(condition).to_pylist()
    return found


def _unnamed(columns: dict[str, pa.Array], key: Sequence[str]) -> Iterator[Bad]:
    """A row without its whole key is no row of the table."""
    missing = {
        row: name
        for name in reversed(key)
        if columns[name].null_count
        for row in pc.indices_nonzero(pc.is_null(columns[name])).to_pylist()
    }
    return (Bad(row, f"the key column {name} is null") for row, name in missing.items())
