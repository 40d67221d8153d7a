import io
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from millstream.base.schema import BadSchema
from millstream.schemas.avro_schema import schema_from_avro, schema_to_avro
from millstream.schemas.declaration import schema_of
from millstream.values.avro_decoder import AvroDecoder
from millstream.values.avro_encoder import AvroEncoder
from millstream.values.confluent_frame import frame
from millstream.values.unfit import Unfit

WRITER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            ],
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "last", "type": ["null", "State"], "default": None},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "long"]}},
    ],
}
AT = datetime(2026, 11, 16, 3, 4, 5, tzinfo=UTC)
REF = UUID(int=7)
ORDER = {
    "id": 5,
    "at": AT,
    "price": Decimal("1.25"),
    "state": "PAID",
    "ref": REF,
    "tags": ["a"],
    "more": {"x": 1, "y": None},
}


def written(row: dict[str, Any], writer: dict[str, Any] = WRITER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), row)
    return stream.getvalue()


def array(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def test_the_writers_record_is_read_with_its_logical_types() -> None:
    result = AvroDecoder(writer=WRITER).decode(array(written(ORDER), None))
    assert not result.bad
    assert result.batch.to_pylist()[0] == ORDER | {
        "ref": str(REF),
        "last": None,
        "more": [("x", 1), ("y", None)],
    }
    assert set(result.batch.to_pylist()[1].values()) == {None}


def test_the_schema_of_an_avro_record_is_known() -> None:
    assert schema_from_avro(WRITER).ddl == (
        "id INT NOT NULL, at TIMESTAMP NOT NULL, price DECIMAL(6,2), state STRING NOT NULL, "
        "last STRING, ref STRING NOT NULL, tags ARRAY<STRING> NOT NULL, "
        "more MAP<STRING, BIGINT> NOT NULL"
    )


def test_a_reader_may_widen_leave_out_and_ask_for_more() -> None:
    decoder = AvroDecoder("id BIGINT, price DECIMAL(8,2), note STRING", writer=WRITER)
    result = decoder.decode(array(written(ORDER)))
    assert result.batch.to_pylist() == [{"id": 5, "price": Decimal("1.25"), "note": None}]


def test_a_header_names_the_writer_of_each_value() -> None:
    old, new = schema_of("id INT"), schema_of("id BIGINT, note STRING")
    known = {3: schema_to_avro(old), 4: schema_to_avro(new)}
    decoder = AvroDecoder(new, writers=known.get)
    values = [
        AvroEncoder(old, schema_id=3).encode({"id": 1}),
        AvroEncoder(new, schema_id=4).encode({"id": 2, "note": "x"}),
        AvroEncoder(new, schema_id=9).encode({"id": 2}),
        AvroEncoder(new).encode({"id": 2, "note": "long"}),
        b"\x00\x00",
    ]
    result = decoder.decode(array(*values))
    assert result.batch.to_pylist()[:2] == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
    assert [(bad.row, bad.reason) for bad in result.bad] == [
        (2, "no schema has the id 9, which the header names"),
        (3, "the first byte is 2, not 0: there is no header with a schema id"),
        (4, "2 bytes are too few for a header with a schema id"),
    ]


def test_bytes_that_are_not_of_the_schema_are_bad_at_every_cut() -> None:
    value = written(ORDER)
    decoder = AvroDecoder(writer=WRITER)
    cut = [value[:size] for size in range(len(value))]
    result = decoder.decode(array(*cut, value, value + b"x"))
    assert [bad.row for bad in result.bad] == [*range(len(value)), len(value) + 1]
    assert result.bad[-1].reason == "not Avro of its schema: 1 bytes are left over"


def test_a_null_where_none_may_be_is_bad() -> None:
    decoder = AvroDecoder("price DECIMAL(6,2) NOT NULL", writer=WRITER)
    result = decoder.decode(array(written(ORDER), written(ORDER | {"price": None})))
    assert [bad.reason for bad in result.bad] == ["field `price`: it is NOT NULL, and is null"]


def test_an_encoder_names_the_field_that_does_not_fit() -> None:
    with pytest.raises(Unfit, match="field `id`: expected INT, found 'x'"):
        AvroEncoder("id INT").encode({"id": "x"})
    with pytest.raises(Unfit, match="field `ids`: it is not in the schema, which has id"):
        AvroEncoder("id INT").encode({"ids": 1})


def test_a_decoder_can_be_sent_to_another_process() -> None:
    known = {3: schema_to_avro(schema_of("id INT"))}
    sent = pickle.loads(pickle.dumps(AvroDecoder("id INT", writers=known.get)))
    value = AvroEncoder("id INT", schema_id=3).encode({"id": 1})
    assert sent.decode(array(value)).batch.to_pylist() == [{"id": 1}]
    assert frame(3, b"\x02\x02") == value


@pytest.mark.parametrize(
    ("avro", "problem"),
    [
        ({"type": "array", "items": "int"}, "values are records in Avro"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]},
            "a column holds one type, or null",
        ),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]},
            "record r contains itself",
        ),
    ],
)
def test_what_has_no_columns_is_refused(avro: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSchema, match=problem):
        AvroDecoder(writer=avro)


def test_a_name_that_avro_does_not_know_is_refused() -> None:
    with pytest.raises(BadSchema, match="Avro has no field named 'order id'"):
        AvroEncoder("`order id` INT")
