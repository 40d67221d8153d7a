"""Every limit of the broker: at the limit it serves, past it the socket is not read or is closed
with a reason. Nothing is dropped silently."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from millstream.broker.wire.messages.fetch import FetchResponse
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.broker.wire.messages.produce import ProduceResponse
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.held_disk import HeldDisk
from tests.support.raw_client import (
    FETCH_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    Fetched,
    RawClient,
    batch_of,
    encoded,
    fetch_request,
    produce_request,
)
from tests.support.waiting import eventually, stays

TOPIC = "limits"
MIB = 1 << 20
FRAME_BYTES_MAX = 5 * MIB
CONNECTIONS_MAX = 5
IN_FLIGHT_MAX = 10
REQUEST_BYTES_MAX = 600_000
UNSYNCED_BYTES_MAX = 1 * MIB
# A loopback socket's buffers, ours and the broker's, take a few MiB before a sender has to wait.
SOCKET_BYTES = 16 * MIB


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk(TOPIC)


@pytest.fixture
def broker(tmp_path: Path, disk: HeldDisk) -> Iterator[BrokerThread]:
    with BrokerThread(
        tmp_path,
        disk=disk,
        frame_bytes_max=FRAME_BYTES_MAX,
        connections_max=CONNECTIONS_MAX,
        requests_in_flight_max=IN_FLIGHT_MAX,
        request_bytes_max=REQUEST_BYTES_MAX,
        unsynced_bytes_max=UNSYNCED_BYTES_MAX,
        message_bytes_max=FRAME_BYTES_MAX,
    ) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
        try:
            yield broker
        finally:
            disk.release()


def end_offset(broker: BrokerThread) -> int:
    """What was appended, synced or not: how many requests the broker has taken."""
    return broker.ask(lambda node: node.topics.named(TOPIC).partitions[0].log.end_offset)


def produce_frame_of(size_bytes: int) -> bytes:
    """A Produce request whose frame, without the size before it, has exactly this many bytes."""
    value_bytes = size_bytes
    for _ in range(8):  # the sizes inside are varints: a few steps settle them
        value = Random(1).randbytes(value_bytes)
        frame = encoded(produce_request(TOPIC, batch_of(value)), PRODUCE_VERSION)
        surplus = len(frame) - 4 - size_bytes
        if surplus == 0:
            return frame
        value_bytes -= surplus
    raise AssertionError(f"no request has exactly {size_bytes} bytes")


# --- the size of a frame ------------------------------------------------------------------------


def test_a_frame_at_the_limit_is_taken(broker: BrokerThread) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_bytes(produce_frame_of(FRAME_BYTES_MAX))
        _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_frame_one_byte_past_the_limit_closes_its_connection(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_bytes(produce_frame_of(FRAME_BYTES_MAX + 1))
        assert client.is_closed()
    line = f"127.0.0.1:{client.port} closed: a request of 5242881 bytes, the limit is 5242880"
    assert line in caplog.text
    assert end_offset(broker) == 0


@pytest.mark.parametrize("size", [-1, -(1 << 31), (1 << 31) - 1])
def test_a_size_that_cannot_be_closes_its_connection(broker: BrokerThread, size: int) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_bytes(struct.pack(">i", size))
        assert client.is_closed()


# --- connections --------------------------------------------------------------------------------


def test_connections_past_the_limit_are_closed_and_a_freed_place_is_given_again(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    eventually(lambda: broker.ask(lambda node: len(node.connections)) == 0, what="none open")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(CONNECTIONS_MAX)]
        for client in clients:
            assert client.metadata(TOPIC).topics[0].error_code == 0
        with RawClient(broker.bootstrap) as one_too_many:
            assert one_too_many.is_closed()
        assert f"127.0.0.1:{one_too_many.port} closed: too many connections" in caplog.text
        for client in clients:
            assert client.metadata(TOPIC).topics[0].error_code == 0
        clients[0].socket.close()
        eventually(
            lambda: broker.ask(lambda node: len(node.connections)) < CONNECTIONS_MAX,
            what="the place of the connection that went",
        )
        with RawClient(broker.bootstrap) as newcomer:
            assert newcomer.metadata(TOPIC).topics[0].error_code == 0


# --- requests in flight -------------------------------------------------------------------------


def test_requests_past_the_limit_are_not_read_until_earlier_ones_are_answered(
    broker: BrokerThread, disk: HeldDisk
) -> None:
    # 10 KB each: more than both socket buffers hold, so that the sender must wait.
    frame = encoded(produce_request(TOPIC, batch_of(bytes(10_000))), PRODUCE_VERSION)
    count = SOCKET_BYTES // len(frame)
    disk.hold()
    with RawClient(broker.bootstrap, within_s=1.0) as client:
        sent = send_until_it_blocks(client, frame * count)
        assert sent < len(frame) * count, "the sender never had to wait"
        eventually(lambda: end_offset(broker) == IN_FLIGHT_MAX, what="as many as are allowed")
        stays(lambda: end_offset(broker) == IN_FLIGHT_MAX, what="and no more")
        disk.release()
        offsets = []
        client.socket.settimeout(10)
        for _ in range(sent // len(frame)):
            _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(sent // len(frame)))


def send_until_it_blocks(client: RawClient, data: bytes) -> int:
    """How many bytes went out before the peer stopped reading for the socket's timeout."""
    view, sent = memoryview(data), 0
    with contextlib.suppress(TimeoutError):
        while sent < len(view):
            sent += client.socket.send(view[sent : sent + 65_536])
    return sent


def test_answers_come_in_the_order_of_the_requests(broker: BrokerThread, disk: HeldDisk) -> None:
    """A request that needs no sync is ready first, and waits for the one before it."""
    disk.hold()
    with RawClient(broker.bootstrap) as client:
        first = client.send(produce_request(TOPIC, batch_of(b"slow")), PRODUCE_VERSION)
        second = client.send(MetadataRequest(topics=[]), METADATA_VERSION)
        assert disk.waiting.wait(5)
        disk.release()
        assert client.receive(ProduceResponse, PRODUCE_VERSION)[0] == first
        assert client.receive(MetadataResponse, METADATA_VERSION)[0] == second


# --- memory -------------------------------------------------------------------------------------


def test_producers_wait_when_too_much_is_unsynced(broker: BrokerThread, disk: HeldDisk) -> None:
    batch = batch_of(bytes(100_000))
    frame = encoded(produce_request(TOPIC, batch, acks=1), PRODUCE_VERSION)
    # The one that passes the limit is still taken.
    allowed = UNSYNCED_BYTES_MAX // len(batch) + 1
    disk.hold()
    with RawClient(broker.bootstrap) as client, RawClient(broker.bootstrap) as reader:
        client.send_bytes(frame * (allowed + 5))
        eventually(lambda: end_offset(broker) == allowed, what="as much as may be unsynced")
        stays(lambda: end_offset(broker) == allowed, what="and no more")
        assert reader.metadata(TOPIC).topics[0].error_code == 0, "only producers wait"
        disk.release()
        for _ in range(allowed + 5):
            _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
            assert answer.responses[0].partition_responses[0].error_code == 0
    assert end_offset(broker) == allowed + 5


@pytest.mark.parametrize("first_bytes", [REQUEST_BYTES_MAX // 2, REQUEST_BYTES_MAX // 2 + 1])
def test_a_large_request_waits_until_there_is_memory_for_it(
    broker: BrokerThread, first_bytes: int
) -> None:
    """Two that fill the budget exactly are received side by side; with one byte more they are
    received one after the other."""
    first_frame = produce_frame_of(first_bytes)
    second_frame = produce_frame_of(REQUEST_BYTES_MAX // 2)
    must_wait = first_bytes > REQUEST_BYTES_MAX // 2
    with RawClient(broker.bootstrap) as first, RawClient(broker.bootstrap) as second:
        first.send_bytes(first_frame[:-1])
        eventually(lambda: used_memory(broker) == first_bytes, what="room for the first")
        second.send_bytes(second_frame)
        if must_wait:
            stays(lambda: end_offset(broker) == 0, what="no room for the second yet")
            first.send_bytes(first_frame[-1:])
        _, answer = second.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        if not must_wait:
            first.send_bytes(first_frame[-1:])
        _, answer = first.receive(ProduceResponse, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert used_memory(broker) == 0


def used_memory(broker: BrokerThread) -> int:
    return broker.ask(lambda node: node.request_memory.used_bytes)


def test_a_connection_that_goes_gives_its_memory_back(broker: BrokerThread) -> None:
    with RawClient(broker.bootstrap) as second:
        with RawClient(broker.bootstrap) as first:
            first.send_bytes(produce_frame_of(REQUEST_BYTES_MAX)[:-1])
            eventually(lambda: used_memory(broker) == REQUEST_BYTES_MAX, what="all of it taken")
            second.send_bytes(produce_frame_of(REQUEST_BYTES_MAX // 2))
            stays(lambda: end_offset(broker) == 0, what="no room for the second yet")
        _, answer = second.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_request_larger_than_all_the_memory_is_received_alone(broker: BrokerThread) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_bytes(produce_frame_of(REQUEST_BYTES_MAX + 1))
        _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def waiting_count(broker: BrokerThread) -> int:
    return broker.ask(lambda node: sum(one.waits_for_us for one in node.connections))


# --- clients that do not read -------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in its own process, so that its memory can be measured, with 16 MiB of records."""
    with BrokerProcess(tmp_path / "data", "--log-level", "warning") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            for _ in range(16):
                assert client.produce(TOPIC, batch_of(bytes(1_000_000))).error_code == 0
        yield broker


# The last three records: less than one answer may hold, so that a client may wait for more.
FETCH_OFFSET = 13
FETCHED_BYTES = 3_000_000
GROWTH_BYTES_MAX = 15 * FETCHED_BYTES


@pytest.mark.parametrize(
    "wait_ms",
    [pytest.param(0, id="answered at once"), pytest.param(20, id="answered after a wait")],
)
def test_answers_that_are_not_read_take_bounded_memory(filled: BrokerProcess, wait_ms: int) -> None:
    """Answers to 90 fetches would be 270 MB, if each were read before it can be sent."""
    request = fetch_request(
        TOPIC, FETCH_OFFSET, bytes_max=1 << 30, bytes_min=1 << 30, wait_ms=wait_ms
    )
    with RawClient(filled.bootstrap) as client, RawClient(filled.bootstrap) as other:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        before_bytes = filled.resident_bytes
        sent = [client.send(request, FETCH_VERSION) for _ in range(90)]
        stays(
            lambda: filled.resident_bytes - before_bytes < GROWTH_BYTES_MAX,
            what="memory of a few answers",
            for_s=1.0,
        )
        assert other.metadata(TOPIC).topics[0].error_code == 0, "other clients are served"
        for correlation_id in sent:
            received, answer = client.receive(FetchResponse, FETCH_VERSION)
            assert received == correlation_id
            assert len(Fetched.from_answer(answer).records) > FETCHED_BYTES


def test_fetches_that_wait_hold_no_records(filled: BrokerProcess) -> None:
    """60 clients, each of whom wants more than there is: what there is, is read when their wait
    is over and not before."""
    request = fetch_request(
        TOPIC, FETCH_OFFSET, bytes_max=1 << 30, bytes_min=1 << 30, wait_ms=60_000
    )
    before_bytes = filled.resident_bytes
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(RawClient(filled.bootstrap))
            client.send(request, FETCH_VERSION)
        with RawClient(filled.bootstrap) as other:
            assert other.metadata(TOPIC).topics[0].error_code == 0
        stays(
            lambda: filled.resident_bytes - before_bytes < GROWTH_BYTES_MAX,
            what="memory of a few answers",
            for_s=1.0,
        )


# --- patience -----------------------------------------------------------------------------------


def test_a_client_that_waits_for_us_is_not_idle(broker: BrokerThread, disk: HeldDisk) -> None:
    """It has sent half a request that we do not read: that is our doing, not its own."""
    with RawClient(broker.bootstrap) as holder, RawClient(broker.bootstrap) as waiting:
        holder.send_bytes(produce_frame_of(REQUEST_BYTES_MAX)[:-1])
        eventually(lambda: used_memory(broker) == REQUEST_BYTES_MAX, what="all of it taken")
        waiting.send_bytes(produce_frame_of(50_000))
        eventually(lambda: waiting_count(broker) == 1, what="it waits")
        broker.ask(lambda node: broker.server.close_idle(node, now_ms=node.now_ms() + 61_000))
        assert holder.is_closed(), "it stopped in the middle of a request"
        _, answer = waiting.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_connection_closed_for_its_silence_is_named_and_counted(
    broker: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.bootstrap) as client:
        client.metadata(TOPIC)
        client.send_bytes(b"\0\0")
        eventually(
            lambda: broker.ask(lambda node: any(c.is_in_frame for c in node.connections)),
            what="half a size has arrived",
        )
        broker.ask(lambda node: broker.server.close_idle(node, now_ms=node.now_ms() + 61_000))
        assert client.is_closed()
    assert f"127.0.0.1:{client.port} closed: silent in the middle of a request for 6" in caplog.text
    assert broker.ask(lambda node: node.metrics.connections_idle_closed) == 1
