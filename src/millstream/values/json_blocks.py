"""Many JSON values to columns at once, with Arrow's reader: the fast path.

Either reads every value of a block exactly as `json_rows.py` would, or refuses the block as a
whole (`NotPlain`). The values are joined by newlines, and guards make sure that one value is one
row:

- each begins with { and ends with }. Between two values stands }\\n{ then, and as a string holds
  no bare newline, that can only be the end of a document. So each value is at least one
  document, and if there are as many rows as values it is exactly one. (Arrow dies of a block
  that is a bare `null`, by the way.)
- they are UTF-8, which Arrow's reader does not ask.
- no number is NaN or infinite: Arrow knows more words for that than Python, and makes some of
  numbers that are too large.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from millstream.base.schema import DataType, DecimalOf, ListOf, MapOf, Scalar, Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema, type_to_arrow
from millstream.values.json_rows import DAYS, MICROS, Number, parse, parse_past_odd_words
from millstream.values.unfit import Unfit

WHITESPACE = " \t\r\n"
ROW_IN_MESSAGE = re.compile(r"in row (\d+)")
# What a column is read as, where that is not its own type.
READ_AS: Final[Mapping[Scalar, pa.DataType]] = {
    Scalar.DATE: pa.string(),
    Scalar.BINARY: pa.string(),
}


class NotPlain(Exception):
    """A block that was refused; `row` is where to look first, if that is known: only a hint."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__(row)
        self.row = row


class JsonBlocks:
    """Reads blocks by one schema. `epoch` is the unit of timestamps that are numbers."""

    def __init__(self, schema: Schema, *, epoch: str = "ms") -> None:
        self._schema = schema
        self._epoch = epoch
        self._arrow_schema = nullable_arrow_schema(schema)
        self._is_possible = not any(_has_map(field.type) for field in schema)

    def read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        """The columns of all values, or `NotPlain`."""
        if not self._is_possible:
            raise NotPlain
        try:
            return self._read(values)
        except (pa.ArrowInvalid, binascii.Error, ValueError) as error:
            place = ROW_IN_MESSAGE.search(str(error))
            raise NotPlain(None if place is None else int(place[1])) from None

    def _read(self, values: pa.BinaryArray) -> pa.RecordBatch:
        texts = _objects(values.fill_null(b"{}") if values.null_count else values)
        joined = _joined(texts)
        found = self._parsed(joined, like=texts[0].as_py())
        if len(found) != len(values):
            raise NotPlain
        columns = [
            _converted(column, field.type, self._epoch)
            for column, field in zip(found.columns, self._arrow_schema, strict=True)
        ]
        for column, field in zip(columns, self._schema, strict=True):
            _check(column, field.type, nulls_max=None if field.nullable else values.null_count)
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)

    def _parsed(self, joined: pa.Buffer, *, like: str) -> pa.RecordBatch:
        sample = _sample(like)
        fields = [
            (field.name, _read_as(field.type, sample.get(field.name))) for field in self._schema
        ]
        table = pyarrow.json.read_json(
            pa.BufferReader(joined),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
            ),
        )
        return table.combine_chunks().to_batches()[0]


def _has_map(data_type: DataType) -> bool:
    match data_type:
        case MapOf():
            return True
        case ListOf(element, _):
            return _has_map(element)
        case Struct():
            return any(_has_map(field.type) for field in data_type)
    return False


def _objects(values: pa.BinaryArray) -> pa.StringArray:
    """The values, each of which begins and ends as an object does."""
    texts = values.cast(pa.string())  # and so UTF-8
    if _first_unbraced(texts) >= 0:
        texts = pc.ascii_trim(texts, characters=WHITESPACE)
        row = _first_unbraced(texts)
        if row >= 0:
            raise NotPlain(row)
    return texts


def _first_unbraced(texts: pa.StringArray) -> int:
    opened, closed = pc.starts_with(texts, pattern="{"), pc.ends_with(texts, pattern="}")
    row: int = pc.index(pc.and_(opened, closed), False).as_py()
    return row


def _joined(texts: pa.StringArray) -> pa.Buffer:
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _sample(text: str) -> dict[str, Any]:
    """One value, to see how its timestamps are written."""
    value = text.encode()
    try:
        document = parse(value)
    except Unfit:
        document = parse_past_odd_words(value)
    except RecursionError:
        return {}
    return document if isinstance(document, dict) else {}


def _read_as(data_type: DataType, sample: Any) -> pa.DataType:
    match data_type:
        case Scalar.TIMESTAMP | Scalar.TIMESTAMP_NTZ if isinstance(sample, Number):
            return pa.int64()
        case Scalar():
            return READ_AS.get(data_type, type_to_arrow(data_type))
        case ListOf(element, _):
            first = sample[0] if isinstance(sample, list) and sample else None
            return pa.list_(pa.field("element", _read_as(element, first)))
        case Struct():
            inner = sample if isinstance(sample, dict) else {}
            return pa.struct(
                [(one.name, _read_as(one.type, inner.get(one.name))) for one in data_type]
            )
    return type_to_arrow(data_type, relaxed=True)


def _converted(array: pa.Array, to: pa.DataType, epoch: str) -> pa.Array:
    """From what it was read as to what it is."""
    if array.type == to:
        return array
    if pa.types.is_struct(to):
        children = [
            _converted(child, field.type, epoch)
            for child, field in zip(_children(array), to, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=array.is_null())
    if pa.types.is_list(to):
        elements = _converted(array.values, to.value_type, epoch)
        return pa.ListArray.from_arrays(array.offsets, elements, type=to, mask=array.is_null())
    if pa.types.is_timestamp(to):
        return array.cast(pa.timestamp(epoch, tz=to.tz)).cast(to)
    if pa.types.is_binary(to):
        decoded = [None if one is None else _unbase64(one) for one in array.to_pylist()]
        return pa.array(decoded, to)
    return array.cast(to)


def _children(array: pa.StructArray) -> list[pa.Array]:
    return [array.field(number) for number in range(array.type.num_fields)]


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _check(array: pa.Array, data_type: DataType, *, nulls_max: int | None) -> None:
    """No nulls but those allowed, no number that is none, no digits too many, no year 10000."""
    if nulls_max is not None and array.null_count > nulls_max:
        raise NotPlain
    match data_type:
        case Scalar.FLOAT | Scalar.DOUBLE:
            if pc.all(pc.is_finite(array)).as_py() is False:
                raise NotPlain
        case ListOf(element, nullable):
            _check(array.flatten(), element, nulls_max=None if nullable else 0)
        case Struct():
            for child, field in zip(array.flatten(), data_type, strict=True):
                _check(child, field.type, nulls_max=None if field.nullable else array.null_count)
        case DecimalOf():
            array.validate(full=True)  # Arrow's reader lets 100 be a DECIMAL(4,2)
        case Scalar.TIMESTAMP | Scalar.TIMESTAMP_NTZ:
            _check_within(array, MICROS)
        case Scalar.DATE:
            _check_within(array, DAYS)
        case Scalar() | MapOf():
            pass


def _check_within(times: pa.Array, allowed: range) -> None:
    ends = pc.min_max(times)
    for end in (ends["min"], ends["max"]):
        if end.is_valid and end.value not in allowed:
            raise NotPlain
