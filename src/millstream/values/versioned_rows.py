"""Envelopes of a table whose columns have had other types: each read by the version that it names.

`source.schema_version` says which columns a record has. Records of a version in which all columns
that anybody looks at have the types of today are read at once; the others by their own types, and
then converted (`retyped.py`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.schema import Field, ListOf, Scalar, Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.values.decoder import Bad, Decoded
from millstream.values.json_decoder import JsonDecoder
from millstream.values.retyped import Retyped, retyped

SOURCE = Struct((Field("source", Struct((Field("schema_version", Scalar.INT),))),))


def envelope_schema(row: Schema) -> Struct:
    """The database has seen to what is NOT NULL."""
    nullable = Struct(tuple(replace(field, nullable=True) for field in row))
    return Struct(
        (
            Field("op", Scalar.STRING, nullable=False),
            Field("after", nullable),
            Field("unavailable", ListOf(Scalar.STRING)),
        )
    )


@dataclass(frozen=True)
class _Older:
    """How records of one older version are read: the columns that had another type, by name."""

    version: int
    decoder: JsonDecoder
    retyped: Mapping[str, Retyped]


class VersionedRows:
    """`columns` are those that anybody looks at, `versions` the columns of the table by version."""

    def __init__(self, columns: Struct, versions: Mapping[int, Schema]) -> None:
        self._versions = versions
        self._current = JsonDecoder(envelope_schema(columns))
        self._schema = nullable_arrow_schema(envelope_schema(columns))
        self._named = JsonDecoder(SOURCE)
        found = (_older(columns, version, of) for version, of in versions.items())
        self._older = {one.version: one for one in found if one.retyped}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """The columns op, after and unavailable."""
        if not self._older:
            return self._hinted(values, self._current.decode(values))
        named = self._version_of(values)
        places: list[int] = []
        batches, bad = [], []
        for version, rows in _grouped(named, self._older):
            part = self._part(version, values.take(pa.array(rows, pa.int64())))
            batches.append(part.batch)
            bad += [Bad(rows[one.row], one.reason) for one in part.bad]
            places += rows
        if not batches:
            return self._current.decode(values)
        order = pc.sort_indices(pa.array(places, pa.int64()))
        whole = pa.concat_batches(batches).take(order)
        return Decoded(whole, sorted(bad, key=lambda one: one.row))

    def _part(self, version: int | None, values: pa.BinaryArray) -> Decoded:
        if version is None:
            return self._hinted(values, self._current.decode(values))
        return self._converted(self._older[version], self._older[version].decoder.decode(values))

    def _version_of(self, values: pa.BinaryArray) -> list[int | None]:
        (source,) = self._named.decode(values).batch.columns
        found: list[int | None] = source.flatten()[0].to_pylist()
        return found

    def _hinted(self, values: pa.BinaryArray, found: Decoded) -> Decoded:
        """A bad row of a version that the job does not know may be good after a restart."""
        if not found.bad or not self._versions:
            return found
        rows = pa.array([one.row for one in found.bad], pa.int64())
        named = self._version_of(values.take(rows))
        bad = [self._hint(one, of) for one, of in zip(found.bad, named, strict=True)]
        return Decoded(found.batch, bad)

    def _hint(self, bad: Bad, version: int | None) -> Bad:
        if version is None or version in self._versions:
            return bad
        hint = f"it has version {version} of the table, which the job does not know: restart it"
        return Bad(bad.row, f"{bad.reason}; {hint}")

    def _converted(self, older: _Older, found: Decoded) -> Decoded:
        op, after, unavailable = found.batch.columns
        wanted = self._schema.field("after").type
        columns, bad = [], [*found.bad]
        for column, field in zip(after.flatten(), wanted, strict=True):
            if (how := older.retyped.get(field.name)) is None:
                columns.append(column)
                continue
            converted, lost = _converted_column(column, field.type, how)
            columns.append(converted)
            for row in lost:
                reason = how.reason(field.name, column[row].as_py(), version=older.version)
                bad.append(Bad(row, reason))
        rows = pa.StructArray.from_arrays(columns, fields=list(wanted), mask=after.is_null())
        batch = pa.RecordBatch.from_arrays([op, rows, unavailable], schema=self._schema)
        return Decoded(batch, [*{one.row: one for one in reversed(bad)}.values()])


def _converted_column(
    column: pa.Array, to: pa.DataType, how: Retyped
) -> tuple[pa.Array, list[int]]:
    """The column, and the rows whose value would have lost something."""
    if (convert := how.convert) is None:
        return column, []
    old = column.to_pylist()
    new = [None if one is None else convert(one) for one in old]
    lost = [row for row, one in enumerate(old) if one is not None and new[row] is None]
    return pa.array(new, to), lost


def _older(columns: Struct, version: int, of: Schema) -> _Older:
    pairs = {field.name: (was, field) for field in columns if (was := of.field(field.name))}
    found = {
        name: retyped(was.type, now.type)
        for name, (was, now) in pairs.items()
        if was.type != now.type
    }
    read = (
        replace(field, type=found[field.name].read_as) if field.name in found else field
        for field in columns
    )
    decoder = JsonDecoder(envelope_schema(Struct(tuple(read))))
    return _Older(version, decoder, {name: how for name, how in found.items() if how.convert})


def _grouped(
    named: list[int | None], older: Mapping[int, _Older]
) -> Iterator[tuple[int | None, list[int]]]:
    """Rows by the older version that they have; None for all that are read as the job knows."""
    groups: dict[int | None, list[int]] = {}
    for row, version in enumerate(named):
        groups.setdefault(version if version in older else None, []).append(row)
    return iter(groups.items())
