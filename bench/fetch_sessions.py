"""Question: what does a fetch session save a consumer of many partitions?

Reproduce:  python -m bench.fetch_sessions

One consumer of 500 partitions fetches again and again; one partition has a new record each time.
In turns: full requests, which name every partition, and a session's (KIP-227), which name the one
that has moved. Counted: bytes both ways, and the CPU of the broker's process, for each fetch.
"""

import socket
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.process_usage import usage_of
from millstream import Broker
from millstream.base.record import Record
from millstream.broker.wire import Message, decode_response, encode_request
from millstream.broker.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.log.record_batch import encode_batch

PARTITIONS = 500
FETCHES_PER_TURN = 200
TURNS = 5
VERSION = 12
TOPIC = "orders"


M = TypeVar("M", bound=Message)


class Client:
    """One connection, a request at a time; counts the bytes both ways."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._file = self._socket.makefile("rb")
        self.bytes = 0

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, request: Message, answer: type[M], version: int = VERSION) -> M:
        data = b"".join(encode_request(request, version, 1, "bench"))
        self._socket.sendall(data)
        size = int.from_bytes(self._file.read(4), "big")
        self.bytes += len(data) + 4 + size
        return decode_response(answer, version, self._file.read(size))[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one fetch cost, on average."""

    bytes: float
    cpu_us: float


def place(number: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)


def request_of(offsets: dict[int, int], session_id: int, epoch: int) -> FetchRequest:
    places = [place(number, offset) for number, offset in offsets.items()]
    topics = [FetchTopic(topic=TOPIC, partitions=places)] if places else []
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics
    )


class Consumer:
    """It knows how far it has come in each partition."""

    def __init__(self, client: Client, offsets: dict[int, int], *, has_session: bool) -> None:
        self._client, self._offsets, self._has_session = client, offsets, has_session
        self._session_id, self._epoch = 0, 0
        self._moved: dict[int, int] = dict(offsets)

    def fetch(self) -> None:
        named = self._moved if self._has_session else self._offsets
        epoch = self._epoch if self._has_session else -1
        answer = self._client.ask(request_of(named, self._session_id, epoch), FetchResponse)
        assert not answer.error_code
        self._session_id, self._epoch, self._moved = answer.session_id, self._epoch + 1, {}
        for part in (part for topic in answer.responses for part in topic.partitions):
            if part.records:
                self._offsets[part.partition_index] += 1
                self._moved[part.partition_index] = self._offsets[part.partition_index]


def produce(client: Client, number: int) -> None:
    batch = encode_batch([Record(value=b"x" * 100, timestamp_ms=1_000)])
    data = PartitionProduceData(index=number, records=batch)
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), ProduceResponse)


def measure(broker: Broker, offsets: dict[int, int], *, has_session: bool) -> Turn:
    """The first fetch, which opens the session, is not counted; the work of producing is."""
    writer, reader = Client(broker.bootstrap), Client(broker.bootstrap)
    consumer = Consumer(reader, offsets, has_session=has_session)
    produce(writer, 0)
    consumer.fetch()
    reader.bytes = 0
    before_s = usage_of(broker.pid).cpu_s
    for number in range(FETCHES_PER_TURN):
        produce(writer, number % PARTITIONS)
        consumer.fetch()
    cpu_s = usage_of(broker.pid).cpu_s - before_s
    turn = Turn(bytes=reader.bytes / FETCHES_PER_TURN, cpu_us=cpu_s / FETCHES_PER_TURN * 1e6)
    writer.close()
    reader.close()
    return turn


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Broker(Path(directory) / "data") as broker:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        client = Client(broker.bootstrap)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse, 7)
        client.close()
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        turns: dict[bool, list[Turn]] = {False: [], True: []}
        for _ in range(TURNS):
            for has_session, measured in turns.items():
                measured.append(measure(broker, offsets, has_session=has_session))
    for has_session, measured in turns.items():
        cpu = sorted(turn.cpu_us for turn in measured)
        sent = statistics.median(turn.bytes for turn in measured)
        print(
            f"{'session' if has_session else 'full requests'}: {sent:,.0f} bytes both ways, "
            f"{statistics.median(cpu):,.0f} us of CPU [{cpu[0]:,.0f} - {cpu[-1]:,.0f}]"
        )


if __name__ == "__main__":
    main()
