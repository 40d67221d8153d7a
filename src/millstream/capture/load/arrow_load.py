"""A whole table of PostgreSQL straight to Arrow: one snapshot, one COPY, no JSON in between.

For a first copy that goes into files or a frame instead of a topic. Columns have the types that
they have in the topic (`CapturedColumn.type`), so both fit together. What such a type cannot hold
(a timestamp `infinity`, a numeric NaN) is an error here that names it; in the topic it is a value
that a reader sets aside. Does not follow changes.
"""

from binascii import unhexlify
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from millstream.base.errors import Rejected
from millstream.base.quantity import MIB
from millstream.base.schema import DataType, Field, ListOf, Scalar, Struct
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.postgres.connection import conninfo_of
from millstream.capture.postgres.copying import copied
from millstream.capture.table_names import split_name
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.values.json_decoder import JsonDecoder

BLOCK_BYTES: Final = 4 * MIB


class NotInArrow(Rejected):
    def __init__(self, *, table: str, reason: str) -> None:
        super().__init__(
            f"{table} cannot be loaded into Arrow: {reason}. Capture it into a topic, where such "
            "values are kept as text, or leave the column out"
        )
        self.table, self.reason = table, reason


class ArrowLoad:
    """Rows as one snapshot sees them. `position`: all of them are before this place of the log."""

    def __init__(self, table: CapturedTable, position: str, rows: Iterator[memoryview]) -> None:
        self.table, self.position = table, position
        self.schema = nullable_arrow_schema(_fields(table))
        self._rows = rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Once; memory stays at a few blocks."""
        try:
            with csv.open_csv(
                pa.PythonFile(CopiedFile(self._rows), mode="r"),
                read_options=csv.ReadOptions(
                    column_names=self.schema.names, block_size=BLOCK_BYTES
                ),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=_conversion(self.table, self.schema),
            ) as reader:
                for batch in reader:
                    yield self._typed(batch)
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                raise NotInArrow(table=self.table.name, reason=str(error)) from error

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches(), self.schema)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            self._column(column, values)
            for column, values in zip(self.table.columns, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: CapturedColumn, values: pa.Array) -> pa.Array:
        if column.type is Scalar.BINARY:
            return pa.array(
                [None if one is None else unhexlify(one[2:]) for one in values.to_pylist()]
            )
        if isinstance(column.type, ListOf):
            return self._lists(column, values)
        return values

    def _lists(self, column: CapturedColumn, values: pa.Array) -> pa.Array:
        """As a topic's reader would decode them."""
        decoder = JsonDecoder(Struct((Field("value", column.type),)))
        texts = [f'{{"value":{one or "null"}}}' for one in values.to_pylist()]
        decoded = decoder.decode(pa.array(texts, pa.string()).cast(pa.binary()))
        if decoded.bad:
            reason = f"column {column.name}: {decoded.bad[0].reason}"
            raise NotInArrow(table=self.table.name, reason=reason)
        return decoded.batch.column(0)


class CopiedFile:
    """What COPY sends, as a file to be read."""

    closed = False

    def __init__(self, rows: Iterator[memoryview]) -> None:
        self._rows = rows

    def read(self, size: int) -> bytes:
        """About so many bytes, and nothing at the end."""
        rows, length = [], 0
        for row in self._rows:
            rows.append(row)
            length += len(row)
            if length >= size:
                break
        return b"".join(rows)

    def close(self) -> None:
        self.closed = True


def loaded_table(url: str, table: CapturedTable, *, capture: str) -> pa.Table:
    connecting = psycopg.connect(conninfo_of(url, capture=capture))
    with connecting as connection, arrow_load(connection, table) as load:
        return load.to_table()


@contextmanager
def arrow_load(connection: psycopg.Connection[Any], table: CapturedTable) -> Iterator[ArrowLoad]:
    """`connection` has the settings of a capture's (`conninfo_of`), and nothing begun."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        position = str(found[0]) if found else ""
        with closing(copied(connection, copy_statement(table))) as rows:
            yield ArrowLoad(table, position, rows)


def copy_statement(table: CapturedTable) -> sql.Composed:
    schema, name = split_name(table.name)
    columns = sql.SQL(", ").join(
        sql.SQL("to_json({})" if isinstance(column.type, ListOf) else "{}").format(
            sql.Identifier(column.name)
        )
        for column in table.columns
    )
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv)")
    return query.format(columns, sql.Identifier(schema, name))


def _fields(table: CapturedTable) -> Struct:
    return Struct(tuple(Field(column.name, column.type) for column in table.columns))


def _conversion(table: CapturedTable, schema: pa.Schema) -> csv.ConvertOptions:
    """NULL is nothing between two commas; an empty text is two quotes."""
    types = {
        column.name: pa.string() if _is_text_first(column.type) else schema.field(place).type
        for place, column in enumerate(table.columns)
    }
    return csv.ConvertOptions(
        column_types=types,
        true_values=["t"],
        false_values=["f"],
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _is_text_first(data_type: DataType) -> bool:
    return data_type is Scalar.BINARY or isinstance(data_type, ListOf)
