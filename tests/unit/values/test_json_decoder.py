import json
import math
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from millstream.base.schema import BadSchema, Field, ListOf, Scalar, Struct
from millstream.values.decoder import Decoded
from millstream.values.json_decoder import HINTED_ROWS_MAX, ROWS_ONE_BY_ONE, JsonDecoder


def decoded(schema: str, *values: bytes | None, epoch: str = "ms") -> Decoded:
    return JsonDecoder(schema, epoch=epoch).decode(pa.array(values, pa.binary()))


def column(schema: str, *values: bytes | None, epoch: str = "ms") -> list[object]:
    """What the only field holds, when nothing is bad."""
    result = decoded(schema, *values, epoch=epoch)
    assert not result.bad
    found: list[object] = result.batch.column(0).to_pylist()
    return found


def reason(schema: str, value: bytes) -> str:
    (bad,) = decoded(schema, value).bad
    return bad.reason


def test_nothing_is_decoded_from_nothing() -> None:
    result = decoded("a INT")
    assert result.batch.num_rows == 0
    assert result.batch.schema == JsonDecoder("a INT").arrow_schema


def test_missing_and_null_are_null_and_extra_fields_are_passed_over() -> None:
    assert column("a INT", b'{"a":1}', b"{}", b'{"a":null}', b'{"a":2,"z":[{}]}') == [
        1,
        None,
        None,
        2,
    ]


def test_a_tombstone_is_a_row_of_nulls_and_not_bad() -> None:
    assert column("a INT NOT NULL", b'{"a":1}', None, b'{"a":2}') == [1, None, 2]
    assert column("a INT", None) == [None]


@pytest.mark.parametrize("odd", [b"oops", b"{oops}", b'{"a":"x"}', b'{"a":1e99}', b'{"a":"\xff"}'])
@pytest.mark.parametrize("size", [ROWS_ONE_BY_ONE + 1, HINTED_ROWS_MAX, HINTED_ROWS_MAX + 1])
def test_a_bad_value_takes_no_others_with_it(odd: bytes, size: int) -> None:
    values = [json.dumps({"a": n}).encode() for n in range(size)]
    places = sorted({0, 3, size // 2, size - 1})
    for place in places:
        values[place] = odd
    result = decoded("a INT", *values)
    assert [bad.row for bad in result.bad] == places
    expected = [None if n in places else n for n in range(size)]
    assert result.batch.column(0).to_pylist() == expected


def test_one_value_is_one_row_however_the_pieces_fall() -> None:
    """Joined, these three make three documents: two of the first, one of the others."""
    result = decoded("a INT", b'{"a":1}{"a":2}', b'{"a":', b"3}")
    assert [bad.row for bad in result.bad] == [0, 1, 2]
    result = decoded("a INT", b'{"a":1}null{"a":2}', b'{"a":3}\n{"a":4}', b"", b'{"a":5}')
    assert [bad.row for bad in result.bad] == [0, 1, 2]


@pytest.mark.parametrize("two", [b'{"a":1}{"a":2}', b'{"a":1}null{"a":2}', b'{"a":1}\n{"a":2}'])
def test_two_documents_in_one_value_are_bad(two: bytes) -> None:
    assert [bad.row for bad in decoded("a INT", two).bad] == [0]
    result = decoded("a INT", b'{"a":7}', two, b'{"a":8}')
    assert [bad.row for bad in result.bad] == [1]
    assert result.batch.column(0).to_pylist() == [7, None, 8]


def test_newlines_and_spaces_around_and_inside_are_no_matter() -> None:
    assert column("a INT", b' {"a":\n1\n}\r\n', b'\t{"a":2}') == [1, 2]


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    assert column("a INT", b'{"a":1,"a":2}', b'{"a":1,"a":null}', b'{"a":3}') == [2, None, 3]


def test_a_block_of_nothing_but_null_does_not_kill_the_process() -> None:
    code = (
        "import pyarrow as pa; from millstream.values.json_decoder import JsonDecoder;"
        "print(len(JsonDecoder('a INT').decode(pa.array([b'null', b'null'], pa.binary())).bad))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout == "2\n"


@pytest.mark.parametrize("depth", [10, 5_000, 200_000])
def test_what_is_nested_deeply_in_a_field_that_nobody_asked_for_is_passed_over(depth: int) -> None:
    deep = b'{"z":' + b"[" * depth + b"]" * depth + b',"a":1}'
    assert column("a INT", deep) == [1]
    assert [bad.row for bad in decoded("a INT", deep, b"oops").bad] == [1]


def test_what_is_nested_deeply_and_broken_is_bad() -> None:
    assert reason("a INT", b'{"z":' + b"[" * 200_000) == "not JSON, or nested too deeply"


BAD_VALUES = """
a INT | oops | not JSON: Expecting value at position 0
a INT | [1] | not a JSON object but an array: [1]
a INT | null | not a JSON object but null: None
a INT | {"a":"1"} | field `a`: expected INT, found a text: '1'
a INT | {"a":1.0} | field `a`: expected INT, found a number: 1.0
a INT | {"a":2147483648} | field `a`: 2147483648 does not fit INT
a BIGINT | {"a":9223372036854775808} | field `a`: 9223372036854775808 does not fit BIGINT
a DOUBLE | {"a":1e400} | field `a`: 1e400 does not fit DOUBLE
a FLOAT | {"a":1e39} | field `a`: 1e39 does not fit FLOAT
a STRING | {"a":5} | field `a`: expected STRING, found a number: 5
a STRING | {"a":"\\ud800"} | field `a`: half of a surrogate pair in '\\ud800'
a BOOLEAN | {"a":0} | field `a`: expected BOOLEAN, found a number: 0
a BINARY | {"a":"%"} | field `a`: expected base64 for BINARY, found '%'
a DATE | {"a":"2026-02-30"} | field `a`: expected a DATE such as '2026-12-31', found '2026-02-30'
a DATE | {"a":"0000-12-31"} | field `a`: '0000-12-31' does not fit DATE
a TIMESTAMP | {"a":1794798245000000} | field `a`: 1794798245000000 does not fit TIMESTAMP
a TIMESTAMP | {"a":253402300800000} | field `a`: 253402300800000 does not fit TIMESTAMP
a TIMESTAMP_NTZ | {"a":-62135596800001} | field `a`: -62135596800001 does not fit TIMESTAMP
a DECIMAL(4,2) | {"a":1.005} | field `a`: 1.005 has more digits after the point than DECIMAL(4,2)
a DECIMAL(4,2) | {"a":100} | field `a`: 100 does not fit DECIMAL(4,2)
a DECIMAL(4,2) | {"a":"100"} | field `a`: '100' does not fit DECIMAL(4,2)
a DECIMAL(4,2) | {"a":1e99999999} | field `a`: 1e99999999 does not fit DECIMAL(4,2)
a INT NOT NULL | {} | field `a`: it is NOT NULL, and is missing
a INT NOT NULL | {"a":null} | field `a`: it is NOT NULL, and is null
a STRUCT<b: INT NOT NULL> | {"a":{}} | field `a.b`: it is NOT NULL, and is missing
a ARRAY<STRUCT<b: INT>> | {"a":[{"b":"x"}]} | field `a[].b`: expected INT, found a text: 'x'
a MAP<STRING, INT> | {"a":{"k":true}} | field `a[]`: expected INT, found a boolean: True
"""


@pytest.mark.parametrize("line", BAD_VALUES.strip().splitlines())
def test_a_bad_value_says_what_is_wrong_and_where(line: str) -> None:
    schema, value, problem = line.split(" | ")
    assert reason(schema, value.encode()) == problem
    among_good = decoded(schema, value.encode(), *[None] * 3)
    assert [(bad.row, bad.reason) for bad in among_good.bad] == [(0, problem)]


def test_a_value_that_is_not_utf8_is_bad() -> None:
    assert reason("a STRING", b'{"a":"\xff"}') == "not UTF-8: byte 0xff at position 6"
    assert reason("a INT", b'{"\xff":0,"a":1}') == "not UTF-8: byte 0xff at position 2"


def test_timestamps_are_texts_or_numbers_also_in_one_column() -> None:
    at = datetime(2026, 11, 16, 3, 4, 5, tzinfo=UTC)
    values = [b'{"at":"2026-11-16T03:04:05Z"}', b'{"at":1794798245000}']
    values += [b'{"at":"2026-11-16 05:04:05+02:00"}', b'{"at":"2026-11-16T03:04:05"}']
    assert column("at TIMESTAMP", *values) == [at] * 4
    assert column("at TIMESTAMP", *reversed(values)) == [at] * 4


@pytest.mark.parametrize(("epoch", "number"), [("s", 1794798245), ("us", 1794798245000000)])
def test_the_unit_of_numbers_is_declared(epoch: str, number: int) -> None:
    at = datetime(2026, 11, 16, 3, 4, 5, tzinfo=UTC)
    assert column("at TIMESTAMP", f'{{"at":{number}}}'.encode(), epoch=epoch) == [at]


def test_times_are_of_the_years_1_to_9999() -> None:
    values = b'{"at":-62135596800000}', b'{"at":253402300799999}'
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert column("at TIMESTAMP", *values) == [datetime(1, 1, 1, tzinfo=UTC), last]
    days = b'{"day":"0001-01-01"}', b'{"day":"9999-12-31"}'
    assert column("day DATE", *days) == [date.min, date.max]


def test_nanoseconds_are_cut_to_micros() -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert column("at TIMESTAMP", b'{"at":"2026-01-01T00:00:00.123456789Z"}') == [at]


def test_decimals_are_exact_from_numbers_and_texts() -> None:
    values = b'{"a":0.1}', b'{"a":"0.10"}', b'{"a":1e1}', b'{"a":123456789012345678.91}'
    expected = [Decimal("0.1"), Decimal("0.1"), Decimal(10), Decimal("123456789012345678.91")]
    assert column("a DECIMAL(20,2)", *values) == expected
    assert column("a DECIMAL(20,2), m MAP<STRING, INT>", *values) == expected


def test_a_float_is_rounded_once() -> None:
    """As a double this is the middle between two floats, and would round to the lower one."""
    value = b'{"a":1.000000059604644776}'
    assert column("a FLOAT", value) == column("a FLOAT, m MAP<STRING, INT>", value)


def test_numbers_that_are_none_are_read_as_python_writes_them() -> None:
    found = column("a DOUBLE", b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":1}')
    assert math.isnan(found[0])  # type: ignore[arg-type]
    assert found[1:] == [-math.inf, 1.0]
    assert reason("a DOUBLE", b'{"a":Inf}').startswith("not JSON")


def test_odd_words_for_numbers_are_passed_over_where_nobody_asks() -> None:
    odd = b'{"z":[Inf,-NaN],"a":1}'
    assert column("a DOUBLE", odd) == [1.0]
    result = decoded("a DOUBLE", odd, b"oops", b'{"a":2,"z":Inf}')
    assert [bad.row for bad in result.bad] == [1]
    assert result.batch.column(0).to_pylist() == [1.0, None, 2.0]


def test_maps_are_objects() -> None:
    found = column("m MAP<STRING, INT>", b'{"m":{"x":1,"y":null}}', b'{"m":{}}', b"{}")
    assert found == [[("x", 1), ("y", None)], [], None]
    with pytest.raises(BadSchema, match="the keys of a map are STRING in JSON"):
        JsonDecoder("m MAP<INT, INT>")


def test_elements_that_may_not_be_null_are_checked() -> None:
    schema = Struct((Field("a", ListOf(Scalar.INT, element_nullable=False)),))
    result = JsonDecoder(schema).decode(pa.array([b'{"a":[1]}', b'{"a":[1,null]}'], pa.binary()))
    assert [bad.reason for bad in result.bad] == ["field `a[]`: it may not hold a null"]


def test_a_part_of_an_array_is_decoded_as_such() -> None:
    whole = pa.array([b"oops", b'{"a":1}', None, b'{"a":2}', b"oops"], pa.binary())
    result = JsonDecoder("a INT").decode(whole[1:4])
    assert result.batch.column(0).to_pylist() == [1, None, 2]
    assert not result.bad


def test_a_decoder_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(JsonDecoder("at TIMESTAMP", epoch="s")))
    found = sent.decode(pa.array([b'{"at":0}'], pa.binary())).batch.column(0).to_pylist()
    assert found == [datetime(1970, 1, 1, tzinfo=UTC)]


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(BadSchema, match="epoch='min': the unit is one of s, ms, us"):
        JsonDecoder("a INT", epoch="min")
