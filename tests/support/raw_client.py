"""A client that is a bare socket: sends any request, or any bytes, and reads what comes back.

Real clients hide what these tests are about: the order of answers, who closes a connection and
when, requests that no decent client would send. Blocking, one thread, one connection.
"""

import itertools
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from millstream.base.record import Record
from millstream.broker.wire import ErrorCode, Message, decode_response, encode_request
from millstream.broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.broker.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.log.record_batch import encode_batch
from tests.support.waiting import eventually

M = TypeVar("M", bound=Message)

WITHIN_S = 10.0
SIZE_BYTES = 4

# The versions that the short forms below use: the newest that name topics rather than ids.
PRODUCE_VERSION = 12
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 7
METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 4
COORDINATOR_WITHIN_S = 60.0
NO_COORDINATOR_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition had to give."""

    error_code: int
    high_watermark: int
    start_offset: int
    records: bytes

    @classmethod
    def from_answer(cls, answer: FetchResponse) -> "Fetched":
        [topic] = answer.responses
        [data] = topic.partitions
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        return cls(
            error_code=data.error_code,
            high_watermark=data.high_watermark,
            start_offset=data.log_start_offset,
            records=bytes(records),
        )


class ConnectionClosed(Exception):
    """The broker has closed the connection."""


class RawClient:
    """One connection; use it as a context manager."""

    def __init__(self, bootstrap: str, *, within_s: float = WITHIN_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=within_s)
        self.port: int = self.socket.getsockname()[1]
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # --- bytes --------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send it all. If the broker closes meanwhile, that is seen by the next read."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def read_frame(self) -> bytes:
        """The next answer without its size; raises ConnectionClosed if there is none."""
        return self._read_exactly(int.from_bytes(self._read_exactly(SIZE_BYTES), "big"))

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                some = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError:
                some = b""
            if not some:
                raise ConnectionClosed(f"after {len(data)} of {count} bytes")
            data += some
        return bytes(data)

    def is_closed(self) -> bool:
        """Whether the broker closes without another byte; waits for it as long as for an answer."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    # --- requests -----------------------------------------------------------------------------

    def send(self, request: Message, version: int) -> int:
        """Send without waiting for the answer; returns the correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(encoded(request, version, correlation_id))
        return correlation_id

    def receive(self, response_class: type[M], version: int) -> tuple[int, M]:
        return decode_response(response_class, version, self.read_frame())

    def call(self, request: Message, response_class: type[M], version: int) -> M:
        sent = self.send(request, version)
        received, response = self.receive(response_class, version)
        assert received == sent, f"answer {received} to request {sent}"
        return response

    def call_coordinator(
        self, request: Message, response_class: type[M], version: int, *, group: str
    ) -> M:
        """Kafka has no coordinator of groups before somebody asks for one."""
        answer: M

        def is_answered() -> bool:
            nonlocal answer
            answer = self.call(request, response_class, version)
            if answer.error_code not in NO_COORDINATOR_YET:  # type: ignore[attr-defined]
                return True
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            self.call(find, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
            return False

        eventually(is_answered, what=f"{group} has a coordinator", within_s=COORDINATOR_WITHIN_S)
        return answer

    # --- short forms --------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        answer = self.try_to_create_topic(name, partitions=partitions, config=config)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def try_to_create_topic(
        self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> CreateTopicsResponse:
        configs = [CreatableTopicConfig(name=k, value=v) for k, v in (config or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        return self.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION)

    def metadata(self, topic: str, *, may_create: bool = False) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create
        )
        return self.call(request, MetadataResponse, METADATA_VERSION)

    def produce(self, topic: str, batch: bytes, *, partition: int = 0) -> PartitionProduceResponse:
        answer = self.call(
            produce_request(topic, batch, partition=partition), ProduceResponse, PRODUCE_VERSION
        )
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, partition: int = 0) -> "Fetched":
        request = fetch_request(topic, offset, partition=partition)
        answer = self.call(request, FetchResponse, FETCH_VERSION)
        return Fetched.from_answer(answer)


def encoded(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """A whole frame, its size included."""
    return b"".join(encode_request(request, version, correlation_id, "raw"))


def batch_of(*values: bytes) -> bytes:
    """A plain batch, as a producer without idempotence sends it."""
    return bytes(encode_batch([Record(value=value, timestamp_ms=1_000) for value in values]))


def produce_request(
    topic: str, batch: bytes, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    bytes_max: int = 1 << 20,
    bytes_min: int = 0,
    wait_ms: int = 0,
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
