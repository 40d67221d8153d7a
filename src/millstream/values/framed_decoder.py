"""Takes the header with a schema's id off, and lets another decoder read the rest.

For JSON that Confluent's serializers wrote. The id is not looked up: JSON names its fields itself.
Avro and Protobuf need their headers, and read them on their own.
"""

import pyarrow as pa

from millstream.values.confluent_frame import unframe
from millstream.values.decoder import Bad, Decoded, Decoder
from millstream.values.unfit import Unfit


class FramedDecoder:
    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._inner.arrow_schema

    def decode(self, values: pa.BinaryArray) -> Decoded:
        contents, bare = _without_headers(values)
        decoded = self._inner.decode(contents)
        return Decoded(decoded.batch, sorted([*decoded.bad, *bare], key=lambda bad: bad.row))


def _without_headers(values: pa.BinaryArray) -> tuple[pa.BinaryArray, list[Bad]]:
    """What follows each header; null, and bad, where there is none."""
    contents: list[bytes | None] = values.to_pylist()
    bare: list[Bad] = []
    for row, value in enumerate(contents):
        try:
            contents[row] = None if value is None else unframe(value)[1]
        except Unfit as error:
            bare.append(Bad(row, str(error)))
            contents[row] = None
    return pa.array(contents, pa.binary()), bare
