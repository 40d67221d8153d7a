"""How fast are the hot messages read and written, ours against kio's?

    python bench/wire_codec.py

Microseconds per message, the best of several rounds, and kio's time divided by ours. Both start
from the same values and the same bytes; headers are in neither. kio's reader is native code (Rust),
its writer is Python; ours are both Python.
"""

from __future__ import annotations

import io
import timeit
from collections.abc import Callable
from typing import Any

from kio.schema.fetch.v16 import request as kio_fetch_request
from kio.schema.fetch.v16 import response as kio_fetch_response
from kio.schema.produce.v10 import request as kio_produce_request
from kio.schema.produce.v10 import response as kio_produce_response
from kio.serial import entity_reader, entity_writer

from millstream.broker.wire import Message, decode, encode
from millstream.broker.wire.messages import fetch, produce

ROUNDS = 7
ROUND_CALLS = 5_000
PARTITIONS = 12
TOPIC_ID = bytes(range(16))
BATCH = bytes(1024)
BIG_BATCH = bytes(256 * 1024)


def produce_request(batch: bytes) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=3, records=batch)
    topic = produce.TopicProduceData(name="orders", partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=3, base_offset=12_345)
    topic = produce.TopicProduceResponse(name="orders", partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic])


def fetch_request() -> fetch.FetchRequest:
    partitions = [
        fetch.FetchPartition(partition=index, fetch_offset=1000, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    topic = fetch.FetchTopic(topic_id=TOPIC_ID, partitions=partitions)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(batch: bytes) -> fetch.FetchResponse:
    partitions = [
        fetch.PartitionData(
            partition_index=index, high_watermark=2000, last_stable_offset=2000, records=batch
        )
        for index in range(PARTITIONS)
    ]
    topic = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    return fetch.FetchResponse(responses=[topic])


def best_us(call: Callable[[], object]) -> float:
    call()
    seconds = min(timeit.repeat(call, number=ROUND_CALLS, repeat=ROUNDS))
    return seconds / ROUND_CALLS * 1e6


def decode_row(message: Message, version: int, kio_class: Any) -> tuple[float, float]:
    data = b"".join(encode(message, version))
    read_kio = entity_reader(kio_class)
    message_class = type(message)
    assert decode(message_class, version, data) == message
    ours = best_us(lambda: decode(message_class, version, data))
    return ours, best_us(lambda: read_kio(data, 0))


def encode_row(message: Message, version: int, kio_class: Any) -> tuple[float, float]:
    data = b"".join(encode(message, version))
    kio_message, _ = entity_reader(kio_class)(data, 0)
    write_kio = entity_writer(kio_class)

    def with_kio() -> bytes:
        with io.BytesIO() as buffer:
            write_kio(buffer, kio_message)
            return buffer.getvalue()

    assert with_kio() == data
    return best_us(lambda: encode(message, version)), best_us(with_kio)


def main() -> None:
    produce_in, produce_out = (
        kio_produce_request.ProduceRequest,
        kio_produce_response.ProduceResponse,
    )
    fetch_in, fetch_out = kio_fetch_request.FetchRequest, kio_fetch_response.FetchResponse
    rows = {
        "decode Produce v10, 1 partition, 1 KiB": decode_row(
            produce_request(BATCH), 10, produce_in
        ),
        "decode Produce v10, 1 partition, 256 KiB": decode_row(
            produce_request(BIG_BATCH), 10, produce_in
        ),
        "encode Produce v10 response": encode_row(produce_response(), 10, produce_out),
        "decode Fetch v16, 12 partitions": decode_row(fetch_request(), 16, fetch_in),
        "encode Fetch v16 response, 12 x 1 KiB": encode_row(fetch_response(BATCH), 16, fetch_out),
        "encode Fetch v16 response, 12 x 256 KiB": encode_row(
            fetch_response(BIG_BATCH), 16, fetch_out
        ),
    }
    print(f"{'':42} {'ours us':>9} {'kio us':>9} {'kio/ours':>9}")
    for name, (ours, kio) in rows.items():
        print(f"{name:42} {ours:9.2f} {kio:9.2f} {kio / ours:9.1f}")


if __name__ == "__main__":
    main()
