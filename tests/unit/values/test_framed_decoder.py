import pickle

import pyarrow as pa

from millstream.values.confluent_frame import frame
from millstream.values.framed_decoder import FramedDecoder
from millstream.values.json_decoder import JsonDecoder

DECODER = FramedDecoder(JsonDecoder("a INT"))


def test_a_header_is_taken_off() -> None:
    values = pa.array([frame(7, b'{"a":1}'), None, frame(8, b'{"a":2}')], pa.binary())
    result = pickle.loads(pickle.dumps(DECODER)).decode(values)
    assert result.batch.column("a").to_pylist() == [1, None, 2]
    assert not result.bad
    assert DECODER.decode(pa.array([None, None], pa.binary())).batch.num_rows == 2
    assert DECODER.decode(pa.array([], pa.binary())).batch.num_rows == 0


def test_values_without_a_header_are_bad_beside_those_that_are_bad_within() -> None:
    values = [frame(7, b"oops"), b'{"a":1}', b"\0\0", frame(7, b'{"a":2}'), frame(7, b""), b""]
    result = DECODER.decode(pa.array(values, pa.binary()))
    assert result.batch.column("a").to_pylist() == [None, None, None, 2, None, None]
    assert [(bad.row, bad.reason) for bad in result.bad] == [
        (0, "not JSON: Expecting value at position 0"),
        (1, "the first byte is 123, not 0: there is no header with a schema id"),
        (2, "2 bytes are too few for a header with a schema id"),
        (4, "not JSON: Expecting value at position 0"),
        (5, "0 bytes are too few for a header with a schema id"),
    ]
    assert result.batch.schema == DECODER.arrow_schema


def test_a_part_of_an_array_is_decoded_as_such() -> None:
    values = pa.array([b"x", frame(7, b'{"a":1}'), b"y", frame(7, b'{"a":2}')], pa.binary())[1:]
    result = DECODER.decode(values)
    assert result.batch.column("a").to_pylist() == [1, None, 2]
    assert [bad.row for bad in result.bad] == [1]
