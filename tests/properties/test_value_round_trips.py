"""What an encoder writes, its decoder reads: any row of any schema."""

import pickle
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.schema import Schema
from millstream.values.avro_decoder import AvroDecoder
from millstream.values.avro_encoder import AvroEncoder
from millstream.values.decoder import Decoder
from millstream.values.encoder import Encoder, encode_batch
from millstream.values.json_decoder import JsonDecoder
from millstream.values.json_encoder import JsonEncoder
from tests.support.schema_strategies import rows, schemas

SCHEMAS_WITH_ROWS = schemas().flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(rows(schema), min_size=1, max_size=4))
)


def with_dicts(found: Any) -> Any:
    """Arrow gives a map as a list of pairs."""
    if isinstance(found, dict):
        return {name: with_dicts(one) for name, one in found.items()}
    if isinstance(found, list):
        if found and all(isinstance(one, tuple) for one in found):
            return {key: with_dicts(one) for key, one in found}
        return [with_dicts(one) for one in found]
    return found


def empty_alike(found: Any) -> Any:
    """An empty map and an empty list look the same in Arrow's answer."""
    if isinstance(found, dict):
        return {name: empty_alike(one) for name, one in found.items()} or []
    return [empty_alike(one) for one in found] if isinstance(found, list) else found


def check(encoder: Encoder, decoder: Decoder, written: list[dict[str, Any]]) -> None:
    values = pa.array([encoder.encode(row) for row in written], pa.binary())
    decoded = decoder.decode(values)
    assert not decoded.bad
    found = [empty_alike(with_dicts(row)) for row in decoded.batch.to_pylist()]
    assert found == [empty_alike(row) for row in written]
    sent = pickle.loads(pickle.dumps(encoder))
    assert decoder.decode(encode_batch(sent, decoded.batch)).batch == decoded.batch


@settings(max_examples=60, deadline=None)
@given(SCHEMAS_WITH_ROWS)
def test_json_is_read_as_it_was_written(example: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, written = example
    check(JsonEncoder(schema), JsonDecoder(schema), written)


@settings(max_examples=60, deadline=None)
@given(SCHEMAS_WITH_ROWS)
def test_avro_is_read_as_it_was_written(example: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, written = example
    encoder = AvroEncoder(schema)
    check(encoder, AvroDecoder(schema), written)
    check(encoder, AvroDecoder(schema, writer=encoder.avro_schema), written)
