"""A connection without a socket: what it owes, and what happens to it when its client goes."""

import asyncio
import logging
from typing import Any

import pytest

from millstream.broker.access.admission import Place
from millstream.broker.connection import Connection
from millstream.broker.server import BrokerServer
from millstream.broker.wire import Buffer, Message, decode_response, encode_request
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest
from millstream.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.broker.wire.messages.delete_topics import DeleteTopicsRequest
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode, produce_request


class FakeTransport(asyncio.Transport):
    """Keeps what is written; closing ends the connection a round later, as a real one does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        super().__init__({"peername": ("192.0.2.7", 5), "sockname": ("127.0.0.1", 9092)})
        self._loop, self._connection = loop, connection
        self.written = bytearray()
        self.is_closed = False
        self.is_paused = False
        self.keeps_open = False  # a client that never takes what was written

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Buffer) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if not self.keeps_open:
                self.abort()

    def abort(self) -> None:
        self._loop.call_soon(self._connection.connection_lost, None)


class Client:
    def __init__(self, served: ServedNode, place: Place | None = None) -> None:
        self._served = served
        self.connection = Connection(served.node, place)
        self.transport = FakeTransport(served.loop, self.connection)
        self.connection.connection_made(self.transport)

    def send(self, request: Message, version: int, correlation_id: int = 1) -> None:
        chunks = encode_request(request, version, correlation_id=correlation_id, client_id="ada")
        self.send_bytes(b"".join(chunks))

    def send_frame(self, content: bytes) -> None:
        self.send_bytes(len(content).to_bytes(4, "big") + content)

    def send_bytes(self, data: bytes) -> None:
        async def deliver() -> None:
            rest = data
            while rest and not self.transport.is_closed:
                buffer = self.connection.get_buffer(len(rest))
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                del buffer
                rest = rest[count:]
                self.connection.buffer_updated(count)

        self._served.run(deliver())

    def go(self) -> None:
        """The client closes its end, and the loop notices."""
        self.transport.close()
        self._served.turn()

    def answers(self) -> list[bytes]:
        data, found = bytes(self.transport.written), []
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        return found


@pytest.fixture
def client(served: ServedNode) -> Client:
    return Client(served)


def long_poll(max_wait_ms: int = 60_000) -> FetchRequest:
    place = FetchPartition(partition=0, partition_max_bytes=1_000)
    topic = FetchTopic(topic="orders", partitions=[place])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


def create_request(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def test_answers_leave_in_the_order_of_the_requests(served: ServedNode, client: Client) -> None:
    served.create()
    client.send(long_poll(), 12, 1)
    client.send(MetadataRequest(topics=[]), 12, 2)
    served.turn()
    assert client.answers() == []
    served.produce(b"new")
    served.turn()
    assert [int.from_bytes(answer[:4], "big") for answer in client.answers()] == [1, 2]
    number, answer = decode_response(MetadataResponse, 12, client.answers()[1])
    assert (number, answer.topics) == (2, [])


def test_a_long_poll_ends_with_its_connection(served: ServedNode, client: Client) -> None:
    (partition,) = served.create().partitions
    client.send(long_poll(), 12)
    served.turn()
    assert partition.watchers
    client.go()
    assert not partition.watchers
    assert not served.node.connections


def test_a_topic_is_created_although_its_client_left_meanwhile(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    client = Client(served)
    gate.shut()
    client.send(create_request("orders"), 7)
    served.turn()
    gate.until_a_sync_waits()
    client.go()
    gate.open_gate()
    served.settle()
    assert "orders" in served.node.topics, "it is on disk, so it must be in memory"
    assert served.produce(b"first") == 0
    assert not served.node.work


def test_a_topic_is_deleted_although_its_client_left_meanwhile(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create()
    client = Client(served)
    gate.shut()
    client.send(DeleteTopicsRequest(topic_names=["orders"]), 5)
    served.turn()
    gate.until_a_sync_waits()
    client.go()
    gate.open_gate()
    while served.node.work:
        served.settle()
    assert "orders" not in served.node.topics
    assert served.create("orders").partitions[0].log.end_offset == 0


def test_a_refused_produce_without_acks_ends_the_connection_with_a_line(
    served: ServedNode, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        client.send(produce_request(b"a", topic="nothing", acks=0), 12)
    assert client.transport.is_closed
    assert "192.0.2.7:5 closed: nothing-0: records sent with acks=0 are refused" in caplog.text
    served.turn()


def test_a_produce_without_acks_has_no_answer(served: ServedNode, client: Client) -> None:
    served.create()
    client.send(produce_request(b"a", acks=0), 12)
    served.settle()
    assert client.answers() == []
    assert not client.transport.is_closed
    assert not client.connection.has_open_requests
    client.go()


def test_past_the_limit_of_unanswered_requests_the_socket_is_not_read(serve: Serve) -> None:
    served = serve(requests_in_flight_max=2)
    served.create()
    client = Client(served)
    for number in range(3):
        client.send(long_poll(), 12, number)
    served.turn()
    assert client.transport.is_paused
    served.produce(b"new")
    served.turn()
    assert not client.transport.is_paused
    assert len(client.answers()) == 3
    client.go()


def test_one_that_asks_much_at_once_lets_others_go_first(
    served: ServedNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.connection.TURN_SECONDS_MAX", -1.0)
    asked = b"".join(encode_request(ApiVersionsRequest(), 0, correlation_id=1, client_id="ada"))
    client.send_bytes(20 * asked)
    assert len(client.answers()) < 5
    assert client.transport.is_paused
    for _ in range(20):
        served.turn()
    assert len(client.answers()) == 20
    assert not client.transport.is_paused


def test_what_a_client_does_wrong_again_and_again_is_one_line(
    served: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            Client(served).send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            served.turn()
    assert len([line for line in caplog.messages if "a request of" in line]) == 1


def test_one_that_is_closed_and_takes_nothing_is_cut_off(served: ServedNode) -> None:
    client = Client(served)
    client.transport.keeps_open = True
    client.connection.close()
    served.turn()
    assert served.node.connections
    BrokerServer.close_idle(None, served.node, now_ms=served.now_ms)  # type: ignore[arg-type]
    served.turn()
    assert not served.node.connections
