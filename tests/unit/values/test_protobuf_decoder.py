import pickle
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from millstream.base.schema import BadSchema
from millstream.schemas.compatibility import UnreadableTopic
from millstream.schemas.protobuf_schema import descriptor_files, message_descriptor
from millstream.values.confluent_frame import frame
from millstream.values.protobuf_decoder import ProtobufDecoder
from millstream.values.protobuf_encoder import ProtobufEncoder
from millstream.values.unfit import Unfit

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum State { NEW = 0; PAID = 1; }
message Line { string sku = 1; uint32 pieces = 2; }
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, double> prices = 4;
  State state = 5;
  google.protobuf.Timestamp at = 6;
  oneof paid { string card = 7; bytes cash = 8; }
  uint64 big = 9;
  google.protobuf.StringValue maybe = 10;
  Line first = 11;
  map<int32, Line> by_number = 12;
  repeated State past = 13;
}
message Loop { Loop next = 1; }
"""
EMPTY: dict[str, Any] = {
    "id": 0,
    "note": None,
    "lines": [],
    "prices": [],
    "state": "NEW",
    "at": None,
    "card": None,
    "cash": None,
    "big": Decimal(0),
    "maybe": None,
    "first": None,
    "by_number": [],
    "past": [],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder: Path = tmp_path_factory.mktemp("proto")
    (folder / "shop.proto").write_text(PROTO)
    known = str(package_files("grpc_tools").joinpath("_proto"))
    out = folder / "shop.bin"
    options = [f"-I{folder}", f"-I{known}", "--include_imports", f"-o{out}", "shop.proto"]
    assert protoc.main(["protoc", *options]) == 0
    return out.read_bytes()


def array(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def order(files: bytes) -> Any:
    message = GetMessageClass(message_descriptor(files, "shop.Order"))()
    message.id = 7
    message.note = ""
    message.lines.add(sku="a", pieces=2)
    message.prices["x"] = 1.5
    message.state = 1
    message.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    message.cash = b"\x01"
    message.big = 2**64 - 1
    message.maybe.value = "m"
    message.by_number[4].sku = "b"
    message.past.extend([1, 0])
    return message


READ = EMPTY | {
    "id": 7,
    "note": "",
    "lines": [{"sku": "a", "pieces": 2}],
    "prices": [("x", 1.5)],
    "state": "PAID",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "cash": b"\x01",
    "big": Decimal(2**64 - 1),
    "maybe": "m",
    "by_number": [(4, {"sku": "b", "pieces": 0})],
    "past": ["PAID", "NEW"],
}


def test_a_message_is_read_by_its_descriptor(files: bytes) -> None:
    decoder = ProtobufDecoder(files, "shop.Order")
    result = decoder.decode(array(order(files).SerializeToString(), b"", None))
    assert result.batch.to_pylist() == [READ, EMPTY, dict.fromkeys(EMPTY)]
    assert not result.bad


def test_a_reader_may_leave_out_widen_and_ask_for_more(files: bytes) -> None:
    decoder = ProtobufDecoder(files, "shop.Order", "id BIGINT, state STRING, later INT")
    result = decoder.decode(array(order(files).SerializeToString()))
    assert result.batch.to_pylist() == [{"id": 7, "state": "PAID", "later": None}]
    with pytest.raises(UnreadableTopic, match="field `id` was BIGINT and is STRING"):
        ProtobufDecoder(files, "shop.Order", "id STRING")


def test_what_protobuf_refuses_is_bad(files: bytes) -> None:
    good = order(files).SerializeToString()
    result = ProtobufDecoder(files, "shop.Order").decode(array(b"\xff", good, good[:-1]))
    assert [bad.row for bad in result.bad] == [0, 2]
    assert result.bad[0].reason.startswith("not a shop.Order: ")


def test_an_enum_value_that_is_newer_than_the_descriptor_is_its_number(files: bytes) -> None:
    value = b"\x28\x09"  # field 5, varint 9
    result = ProtobufDecoder(files, "shop.Order", "state STRING").decode(array(value))
    assert result.batch.to_pylist() == [{"state": "9"}]


def test_a_time_out_of_range_is_bad(files: bytes) -> None:
    message = order(files)
    message.at.seconds = 2**62
    result = ProtobufDecoder(files, "shop.Order").decode(array(message.SerializeToString()))
    assert [bad.reason for bad in result.bad] == [f"a time out of range: {2**62} s since 1970"]


@pytest.mark.parametrize("path", [b"\x00", b"\x02\x02", b"\x04\x02\x00"])
def test_a_header_with_any_path_to_the_message_is_taken_off(files: bytes, path: bytes) -> None:
    value = frame(5, path + order(files).SerializeToString())
    decoder = ProtobufDecoder(files, "shop.Order", framed=True)
    assert decoder.decode(array(value)).batch.to_pylist() == [READ]
    assert len(decoder.decode(array(value[:5], value[:3], frame(5, b"\x80" * 9))).bad) == 3


def test_an_encoder_writes_what_the_decoder_reads(files: bytes) -> None:
    row = READ | {"prices": {"x": 1.5}, "by_number": {4: {"sku": "b", "pieces": 0}}}
    encoder = pickle.loads(pickle.dumps(ProtobufEncoder(files, "shop.Order")))
    value = encoder.encode(row)
    assert ProtobufDecoder(files, "shop.Order").decode(array(value)).batch.to_pylist() == [READ]


def test_an_encoder_names_the_field_that_does_not_fit(files: bytes) -> None:
    encoder = ProtobufEncoder(files, "shop.Order")
    with pytest.raises(Unfit, match="field `state`: expected one of NEW, PAID, found 'OLD'"):
        encoder.encode({"state": "OLD"})
    with pytest.raises(Unfit, match="field `big`: -1 does not fit uint64"):
        encoder.encode({"big": -1})
    with pytest.raises(Unfit, match="field `what`: it is not in the schema"):
        encoder.encode({"what": 1})


def test_a_message_that_contains_itself_is_refused(files: bytes) -> None:
    with pytest.raises(BadSchema, match=r"shop.Loop contains itself"):
        ProtobufDecoder(files, "shop.Loop")


def test_an_unknown_message_is_told_those_that_are_there(files: bytes) -> None:
    with pytest.raises(BadSchema, match=r"no message is named 'Order'; there are .*shop.Order"):
        ProtobufDecoder(files, "Order")
    with pytest.raises(BadSchema, match="not a FileDescriptorSet"):
        ProtobufDecoder(b"\xff", "Order")


def test_a_generated_class_has_its_files(files: bytes) -> None:
    again = descriptor_files(message_descriptor(files, "shop.Order"))
    result = ProtobufDecoder(again, "shop.Order").decode(array(b""))
    assert result.batch.to_pylist() == [EMPTY]


def test_a_decoder_can_be_sent_to_another_process(files: bytes) -> None:
    sent = pickle.loads(pickle.dumps(ProtobufDecoder(files, "shop.Order", "id BIGINT")))
    assert sent.decode(array(b"\x08\x07")).batch.to_pylist() == [{"id": 7}]
