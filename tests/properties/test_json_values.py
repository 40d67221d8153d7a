"""JSON decoding against a naive model: `json.loads`, one value at a time, and some rules."""

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.schemas import schema_of
from millstream.values.json_decoder import JsonDecoder

SCHEMA = schema_of(
    "n BIGINT, small TINYINT, x DOUBLE, f FLOAT, ok BOOLEAN, s STRING, b BINARY, d DATE, "
    "at TIMESTAMP, amount DECIMAL(6,2), tags ARRAY<STRING>, must INT NOT NULL, "
    "inner STRUCT<k: INT NOT NULL, at: TIMESTAMP, day: DATE, more: ARRAY<STRUCT<v: DOUBLE>>>"
)
NAMES = [field.name for field in SCHEMA]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoFitError(Exception):
    """The model refuses this value."""


def integer(bits: int) -> Callable[[Any], int]:
    def read(found: Any) -> int:
        if type(found) is not int or not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1):
            raise NoFitError
        return found

    return read


def number(found: Any) -> float:
    if type(found) is str and found in ("NaN", "Infinity", "-Infinity"):
        return float(found)
    if type(found) not in (int, float, Decimal):
        raise NoFitError
    try:
        read = float(found)
    except OverflowError:
        raise NoFitError from None
    if math.isinf(read) and isinstance(found, Decimal) and found.is_finite():
        raise NoFitError
    return read


def single(found: Any) -> float:
    read: float = pa.scalar(number(found), pa.float64()).cast(pa.float32(), safe=False).as_py()
    if math.isinf(read) and not math.isinf(number(found)):
        raise NoFitError
    return read


def exactly(kind: type) -> Callable[[Any], Any]:
    def read(found: Any) -> Any:
        if type(found) is not kind:
            raise NoFitError
        return found

    return read


def text(found: Any) -> str:
    read: str = exactly(str)(found)
    if any(0xD800 <= ord(character) <= 0xDFFF for character in read):
        raise NoFitError
    return read


def binary(found: Any) -> bytes:
    try:
        return base64.b64decode(text(found), validate=True)
    except ValueError:
        raise NoFitError from None


def day(found: Any) -> date:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text(found)):
        raise NoFitError
    try:
        return date.fromisoformat(found)
    except ValueError:
        raise NoFitError from None


def moment(found: Any) -> datetime:
    if type(found) is int:
        return EPOCH + timedelta(milliseconds=found)
    try:
        read = datetime.fromisoformat(text(found))
    except ValueError:
        raise NoFitError from None
    return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)


def money(found: Any) -> Decimal:
    try:
        read = Decimal(exactly(str)(found) if isinstance(found, str) else number(found) and found)
    except InvalidOperation:
        raise NoFitError from None
    if not read.is_finite() or abs(read) >= 10_000 or (read * 100) % 1:
        raise NoFitError
    return read


def array_of(element: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: [None if one is None else element(one) for one in exactly(list)(found)]


def struct_of(
    parts: dict[str, Callable[[Any], Any]], must: set[str]
) -> Callable[[Any], dict[str, Any]]:
    def read(found: Any) -> dict[str, Any]:
        row = exactly(dict)(found)
        if any(row.get(name) is None for name in must):
            raise NoFitError
        return {
            name: None if row.get(name) is None else one(row[name]) for name, one in parts.items()
        }

    return read


INNER = {
    "k": integer(32),
    "at": moment,
    "day": day,
    "more": array_of(struct_of({"v": number}, set())),
}
MODEL = struct_of(
    {
        "n": integer(64),
        "small": integer(8),
        "x": number,
        "f": single,
        "ok": exactly(bool),
        "s": text,
        "b": binary,
        "d": day,
        "at": moment,
        "amount": money,
        "tags": array_of(text),
        "must": integer(32),
        "inner": struct_of(INNER, {"k"}),
    },
    {"must"},
)


def without_odd_words(value: bytes) -> bytes:
    """Words for numbers that are none, which fit nowhere but may stand where nobody looks."""
    text_or_word = rb'"(?:[^"\\]|\\.)*"|-?\b(?:Infinity|Inf|NaN)\b'
    return re.sub(text_or_word, lambda m: m[0] if m[0][:1] == b'"' else b"[[[]]]", value)


def by_the_model(value: bytes | None) -> dict[str, Any] | None:
    """The row, of nulls for a tombstone; None if the value is bad."""
    if value is None:
        return dict.fromkeys(NAMES)
    for text in (value, without_odd_words(value)):
        try:
            return MODEL(json.loads(text.decode(), parse_float=Decimal))
        except (NoFitError, ValueError):
            continue
    return None


# Plausible and odd content for any field, as JSON text.
SCALARS = st.one_of(
    st.integers(-130, 130).map(str),
    st.sampled_from([2**31, 2**63, -(2**63), 2**63 - 1, 10**30, 1_790_000_000_000]).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(json.dumps),
    st.sampled_from(
        ["1e400", "1e39", "1e-400", "1.0", "1e2", "0.005", "12.340", "16777217", "12345", "-0.0"]
    ),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "Inf", "-NaN", "nan"]),
    st.sampled_from(["true", "false", "null", "null", "[]", "{}", "[null]", "01", "1."]),
    st.text(max_size=6).map(json.dumps),
    st.text(max_size=4).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"a\nb"', '"12.34"', '"NaN"']),
    st.datetimes(timezones=st.sampled_from([UTC, None])).map(lambda at: f'"{at.isoformat()}"'),
    st.sampled_from(
        [
            '"2026-11-16"',
            '"2026-02-30"',
            '"2026-11-16T03"',
            '"2026-11-16 03:04"',
            '"2026-11-16T03:04:05+02:00"',
            '"2026-11-16T03:04:05.123456789Z"',
            '"2026-11-16T24:00:00Z"',
            '"eA=="',
            '"eA="',
        ]
    ),
)
CONTENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(
            st.tuples(st.sampled_from(["k", "at", "more", "v", "z", "day"]), inner), max_size=3
        ).map(lambda parts: "{" + ", ".join(f'"{key}": {one}' for key, one in parts) + "}")
    ),
    max_leaves=6,
)
FITTING = st.fixed_dictionaries(
    {"must": st.just("1")},
    optional={
        "n": st.integers(-(2**63), 2**63 - 1).map(str),
        "small": st.integers(-128, 127).map(str),
        "x": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
        "f": st.sampled_from(["1", "0.1", "-2.5e3"]),
        "ok": st.sampled_from(["true", "false", "null"]),
        "s": st.text(max_size=5).map(json.dumps),
        "b": st.binary(max_size=4).map(lambda raw: f'"{base64.b64encode(raw).decode()}"'),
        "d": st.dates().map(lambda at: f'"{at}"'),
        "at": st.datetimes(timezones=st.just(UTC)).map(lambda at: f'"{at.isoformat()}"')
        | st.integers(0, 4_000_000_000_000).map(str),
        "amount": st.decimals(-9999, 9999, places=2).map(lambda one: f"{one}"),
        "tags": st.just('["a", null, "b"]'),
        "inner": st.sampled_from(
            [
                "null",
                '{"k": 1}',
                '{"k": 2, "at": 1790000000000}',
                '{"k": 3, "day": "2026-01-01"}',
                '{"k": 4, "more": [{"v": 1}, {}, null]}',
            ]
        ),
        "extra": st.just('{"deep": [1, {"x": null}]}'),
    },
)


def document(fields: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{content}' for name, content in fields) + "}"


PLAIN = FITTING.map(lambda fields: document(list(fields.items())))
ODD = st.tuples(
    FITTING, st.lists(st.tuples(st.sampled_from([*NAMES, "z"]), CONTENTS), max_size=2)
).map(lambda both: document([*both[0].items(), *both[1]]))
BROKEN = st.sampled_from(
    [
        *["", " ", "null", "1", "[]", '"x"', "{}", "{", "}", "{}{}", "{}null{}", "\ufeff{}"],
        *['{"must":1}{"must":2}', '{"must":', "1}", '{"must":1}\x00'],
        *['{"must":1}\n', ' {"must":1}\t', '{"must":\n1\n}'],
    ]
)
VALUES = st.one_of(
    PLAIN.map(str.encode),
    PLAIN.map(str.encode),
    ODD.map(lambda text: text.encode(errors="surrogatepass")),
    BROKEN.map(str.encode),
    st.tuples(PLAIN.map(str.encode), st.integers(0, 60), st.binary(max_size=2)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + 1 :]
    ),
    st.none(),
)
DECODER = JsonDecoder(SCHEMA)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)  # NaN is NaN here, and -0.0 is not 0.0
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


# Words that only Arrow knows, in a field that is passed over, beside what Arrow does not read so.
ODD_WORDS_PASSED_OVER: list[bytes | None] = [
    b'{"must":1,"at":1790000000000,"z":Inf}',
    b'{"must":1,"inner":{"k":2,"at":1790000000000},"z":[-NaN]}',
    b'{"must":1,"x":"NaN","z":-Inf}',
    b'{"must":1,"must":2,"z":{"v":Inf}}',
    b'{"must":1,"s":"Inf \\" NaN","x":"-Infinity","z":Inf}',
    b'{"must":1,"n":Inf,"z":Inf}',
    b'{"must":1,"x":NaN,"z":Inf}',
]


@settings(max_examples=150, deadline=None)
@given(st.lists(VALUES, max_size=12))
@example(ODD_WORDS_PASSED_OVER)
def test_a_block_says_of_each_value_what_json_loads_says_of_it_alone(
    values: list[bytes | None],
) -> None:
    decoded = DECODER.decode(pa.array(values, pa.binary()))
    expected = [by_the_model(value) for value in values]
    assert [bad.row for bad in decoded.bad] == [
        row for row, one in enumerate(expected) if one is None
    ]
    for value, found, wanted in zip(values, decoded.batch.to_pylist(), expected, strict=True):
        assert same(found, wanted or dict.fromkeys(NAMES)), value


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=8))
@example([b'{"must":1}', *ODD_WORDS_PASSED_OVER])
@example([b'{"must":1,"at":1}', ODD_WORDS_PASSED_OVER[0]])
def test_a_value_is_read_the_same_whatever_its_neighbours_are(values: list[bytes | None]) -> None:
    together = DECODER.decode(pa.array(values, pa.binary()))
    apart = [DECODER.decode(pa.array([value], pa.binary())) for value in values]
    assert same(together.batch.to_pylist(), [one.batch.to_pylist()[0] for one in apart])
    assert [(bad.row, bad.reason) for bad in together.bad] == [
        (row, bad.reason) for row, one in enumerate(apart) for bad in one.bad
    ]
