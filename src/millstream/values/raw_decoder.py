"""Values as they are: one column, BINARY or STRING."""

import pyarrow as pa

from millstream.base.schema import BadSchema
from millstream.values.decoder import Decoded
from millstream.values.row_columns import Row
from millstream.values.row_decoding import decode_rows
from millstream.values.unfit import Unfit


class RawDecoder:
    """As BINARY nothing is ever bad; as STRING what is not UTF-8."""

    def __init__(self, column: str = "value", *, text: bool = False) -> None:
        if not column:
            raise BadSchema("the column of raw values needs a name")
        self._column, self._text = column, text
        self.arrow_schema = pa.schema([(column, pa.string() if text else pa.binary())])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        try:
            column = values.cast(self.arrow_schema.field(0).type)
        except pa.ArrowInvalid:
            return decode_rows(values, self._row, self.arrow_schema)
        return Decoded(pa.RecordBatch.from_arrays([column], schema=self.arrow_schema), [])

    def _row(self, value: bytes) -> Row:
        try:
            return {self._column: value.decode()}
        except UnicodeDecodeError as error:
            byte = value[error.start]
            raise Unfit(f"not UTF-8: byte 0x{byte:02x} at position {error.start}") from None
