"""A client that opens all the connections it can, and says nothing: others still get in."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.server import STALLED_MS_MAX
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.metadata import MetadataRequest
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import METADATA_VERSION, RawClient
from tests.support.waiting import eventually

CONNECTIONS_MAX = 12
FETCH_VERSION = 12  # the newest with names
PER_ADDRESS = CONNECTIONS_MAX // 4
LOCAL_CLIENTS = 1_000
HALF_A_SIZE = b"\0\0"


def hog(broker: BrokerProcess, count: int) -> list[RawClient]:
    return [RawClient(broker.bootstrap) for _ in range(count)]


def kept_open(clients: list[RawClient]) -> list[RawClient]:
    """Those that the broker has not closed: it answers a second later, or never."""
    kept = []
    for client in clients:
        client.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            if client.socket.recv(1) == b"":
                client.socket.close()
                continue
        kept.append(client)
    return kept


@contextlib.contextmanager
def closing(clients: list[RawClient]) -> Iterator[list[RawClient]]:
    try:
        yield clients
    finally:
        for client in clients:
            client.socket.close()


def test_one_address_takes_a_quarter_of_the_connections_and_others_get_in(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", f"--connections-max={CONNECTIONS_MAX}") as broker,
        closing(hog(broker, CONNECTIONS_MAX + 5)) as hogs,
    ):
        assert len(kept_open(hogs)) == PER_ADDRESS
        host, port = broker.bootstrap.rsplit(":", 1)
        with contextlib.ExitStack() as others:
            for address in ("127.0.0.2", "127.0.0.3"):
                for _ in range(PER_ADDRESS):
                    client = others.enter_context(RawClient(broker.bootstrap))
                    client.socket.close()
                    client.socket = socket.create_connection((host, int(port)), 10, (address, 0))
                    assert client.metadata("orders").cluster_id
        lines = broker.diagnostics.splitlines()
        assert sum("connections_per_address_max" in line for line in lines) == 1
        assert_no_traceback(broker.diagnostics)


def test_one_address_does_not_take_all_descriptors_where_there_are_few(tmp_path: Path) -> None:
    """With the default settings, whose quarter is more than this broker can open."""
    with (
        BrokerProcess(tmp_path / "data", descriptors_max=256) as broker,
        closing(hog(broker, 80)) as hogs,
    ):
        assert 0 < len(kept_open(hogs)) <= 256 // 8
        host, port = broker.bootstrap.rsplit(":", 1)
        with RawClient(broker.bootstrap) as client:
            client.socket.close()
            client.socket = socket.create_connection((host, int(port)), 10, ("127.0.0.2", 0))
            assert client.metadata("orders").cluster_id
        assert "not connections_max=4000" in broker.diagnostics
        assert_no_traceback(broker.diagnostics)


def test_a_thousand_local_clients_are_served_by_default_and_not_one_more(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, closing([]) as clients:
        for _ in range(LOCAL_CLIENTS):
            clients.append(RawClient(broker.bootstrap))
            assert clients[-1].metadata("orders").cluster_id
        with RawClient(broker.bootstrap) as one_more:
            assert one_more.is_closed()
        assert clients[0].metadata("orders").cluster_id


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", "--first-request-ms-max=1s") as broker:
        yield broker


@pytest.mark.parametrize("sent", [b"", HALF_A_SIZE], ids=["silent", "half a size"])
def test_a_connection_without_a_request_is_closed_and_others_are_not(
    impatient: BrokerProcess, sent: bytes
) -> None:
    with RawClient(impatient.bootstrap) as asking, RawClient(impatient.bootstrap) as hogging:
        asking.metadata("orders")
        if sent:
            hogging.send_bytes(sent)
        assert hogging.is_closed()
        asking.metadata("orders")
    eventually(
        lambda: f":{hogging.port} closed: without a request for" in impatient.diagnostics,
        what="a line that says so",
    )


def test_one_that_goes_with_a_request_behind_a_long_poll_gives_back_its_place(
    tmp_path: Path,
) -> None:
    place = FetchPartition(partition=0, partition_max_bytes=1_000)
    topics = [FetchTopic(topic="orders", partitions=[place])]
    for_weeks = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=topics)
    with BrokerThread(tmp_path) as broker:

        def look(later_ms: int = 0) -> None:
            broker.ask(lambda node: broker.server.close_idle(node, now_ms=node.now_ms() + later_ms))

        with RawClient(broker.bootstrap) as client:
            client.create_topic("orders")
            client.send(for_weeks, FETCH_VERSION)
            client.send(MetadataRequest(topics=[]), METADATA_VERSION)
            eventually(
                lambda: broker.ask(lambda node: all(c.is_not_read for c in node.connections)),
                what="the second request waits",
            )
            look(later_ms=2 * STALLED_MS_MAX)
            assert broker.ask(lambda node: len(node.connections)) == 1, "who waits may wait"

        def has_none_after_a_look() -> bool:
            look(later_ms=2 * STALLED_MS_MAX)
            return broker.ask(lambda node: len(node.connections)) == 0

        eventually(has_none_after_a_look, what="its place is free")
