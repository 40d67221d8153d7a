"""Changes of rows in Debezium's envelope to columns: the row as it is after each change.

    {"before":...,"after":{"id":7,"total":"9.50"},"source":...,"op":"u","ts_ms":...}

`before` is passed over unread; of `source` only the version of the table counts. A delete (op d) is
a row that is gone, like the tombstone behind it. A truncation (op t) is passed over: a capture
writes the deletes of the rows that it took behind it. What an update leaves out (`unavailable`:
databases do not log large values that did not change) is nobody's guess: such a row is bad.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.declared import DebeziumModes
from millstream.base.schema import Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.values.debezium_rows import OURS, UnfitValue, own_envelope
from millstream.values.decoder import Bad, Decoded
from millstream.values.versioned_rows import VersionedRows

DELETED: Final = "d"
TRUNCATED: Final = "t"
COMING: Final = pa.array(["c", "u", "r"])
PASSED: Final = b'{"op":"t"}'  # instead of a change that cannot be read: it is told as bad
DEBEZIUM_DEFAULTS: Final = DebeziumModes()
NO_VERSIONS: Final[Mapping[int, Schema]] = {}
OPS: Final = pa.array(["c", "u", "r", DELETED, TRUNCATED])


class EnvelopeDecoder:
    """`schema` is that of the table's rows. The database has seen to what is NOT NULL.

    `used`: the columns that anybody looks at (None: all). The others are null, and nothing about
    them makes a row bad: a column may have had another type when the change was written. `modes`:
    how Debezium was set to spell values. `versions`: the columns that a captured table has had, by
    version: a column that had another type is read by that (`versioned_rows.py`).
    """

    def __init__(
        self,
        schema: Schema,
        modes: DebeziumModes = DEBEZIUM_DEFAULTS,
        used: frozenset[str] | None = None,
        versions: Mapping[int, Schema] = NO_VERSIONS,
    ) -> None:
        self.schema, self.modes, self.used, self.versions = schema, modes, used, versions
        self.arrow_schema = nullable_arrow_schema(schema)
        self._read = [field for field in schema if used is None or field.name in used]
        self._known = Struct(tuple(self._read))
        self._envelopes = VersionedRows(self._known, versions)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return EnvelopeDecoder, (self.schema, self.modes, self.used, self.versions)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        values, unfit = self._in_own_forms(values)
        read = self._envelopes.decode(values)
        op, after, unavailable = read.batch.columns
        named = {bad.row for bad in read.bad}
        found = [*self._unsound(op, after, unavailable), *unfit]
        bad = [one for one in found if one.row not in named]
        rows = pa.RecordBatch.from_arrays(self._columns(after), schema=self.arrow_schema)
        return Decoded(
            rows,
            sorted([*read.bad, *bad], key=lambda one: one.row),
            gone=pc.fill_null(pc.equal(op, DELETED), False),
            passed=pc.fill_null(pc.equal(op, TRUNCATED), False),
        )

    def _in_own_forms(self, values: pa.BinaryArray) -> tuple[pa.BinaryArray, list[Bad]]:
        """Those of Debezium are read one by one; a batch of our own is left as it is."""
        if pc.all(pc.fill_null(pc.match_substring_regex(values, OURS), True)).as_py():
            return values, []
        found: list[bytes | None] = []
        bad: list[Bad] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                own = None if value is None else own_envelope(value, self._known, self.modes)
            except UnfitValue as error:
                own = PASSED
                bad.append(Bad(row, str(error)))
            found.append(own)
        return pa.array(found, values.type), bad

    def _columns(self, after: pa.StructArray) -> list[pa.Array]:
        found = dict(zip((field.name for field in self._read), after.flatten(), strict=True))
        return [
            found[column.name] if column.name in found else pa.nulls(len(after), column.type)
            for column in self.arrow_schema
        ]

    def _unsound(self, op: pa.Array, after: pa.Array, unavailable: pa.Array) -> Iterator[Bad]:
        """Envelopes that can be read, but from which the row is not known."""
        for row in _where(pc.invert(pc.is_in(op, OPS)), op):
            yield Bad(row, f"op {op[row].as_py()!r} is none that changes a row")
        for row in _where(pc.and_(pc.is_in(op, COMING), pc.is_null(after)), op):
            yield Bad(row, f"op {op[row].as_py()!r} has no `after`")
        if unavailable.null_count < len(unavailable):
            yield from self._left_out(unavailable)

    def _left_out(self, unavailable: pa.Array) -> Iterator[Bad]:
        known = {field.name for field in self._read}
        for row in pc.indices_nonzero(pc.is_valid(unavailable)).to_pylist():
            missing = [name for name in unavailable[row].as_py() if name in known]
            if missing:
                yield Bad(row, _left_out_reason(missing))


def _where(condition: pa.BooleanArray, op: pa.Array) -> list[int]:
    """Of values that are no tombstones and could be read: those have an op."""
    found: list[int] = pc.indices_nonzero(pc.and_(condition, pc.is_valid(op))).to_pylist()
    return found


def _left_out_reason(missing: list[str]) -> str:
    return (
        f"the database left out {', '.join(missing)}, which did not change: ALTER TABLE ... "
        "REPLICA IDENTITY FULL makes it send them"
    )
