"""Whatever comes by HTTP costs the broker little, and harms no client of it."""

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from millstream.broker.metrics import endpoint, exposition
from millstream.broker.metrics.endpoint import OPEN_METRICS
from millstream.broker.metrics.family import Family
from millstream.broker.metrics.http_request import HEAD_BYTES_MAX
from millstream.broker.node import Node
from tests.support.broker_process import BrokerProcess
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.scrape import Scrape
from tests.support.waiting import eventually

WITHIN_S = 20.0
GET_METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
GET_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, metrics_listen=("127.0.0.1", 0)) as broker:
        yield broker


def url_of(broker: BrokerThread) -> str:
    assert broker.server.metrics_url is not None
    return broker.server.metrics_url


def connect(broker: BrokerThread, address: str = "127.0.0.1") -> socket.socket:
    """From one of this machine's own addresses."""
    where = urlsplit(url_of(broker))
    to = (where.hostname, where.port)
    return socket.create_connection(to, timeout=WITHIN_S, source_address=(address, 0))


def read_all(connection: socket.socket) -> bytes:
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while some := connection.recv(1 << 16):
            text += some
    return text


def ask(broker: BrokerThread, request: bytes, address: str = "127.0.0.1") -> bytes:
    """Everything that comes back until the connection ends."""
    with connect(broker, address) as connection:
        connection.sendall(request)
        return read_all(connection)


def assert_serves(broker: BrokerThread) -> None:
    assert Scrape(url_of(broker)).value("millstream_topics") is not None
    with RawClient(broker.bootstrap) as client:
        assert client.metadata("anything").topics is not None


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"\x00\x00\x00\x04ping\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/3\r\n\r\n", b"505"),
        (b"GET /healthz HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_each_request_gets_its_status(
    broker: BrokerThread, request_bytes: bytes, status: bytes
) -> None:
    assert ask(broker, request_bytes).split(b" ")[1] == status
    assert_serves(broker)


def test_head_is_answered_without_a_body(broker: BrokerThread) -> None:
    text = ask(broker, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert text.startswith(b"HTTP/1.1 200 OK")
    assert text.endswith(b"\r\n\r\n")


def test_a_head_without_end_is_refused_at_its_limit(broker: BrokerThread) -> None:
    request = b"GET /metrics HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX
    assert ask(broker, request).startswith(b"HTTP/1.1 431 ")
    assert_serves(broker)


def test_one_who_asks_too_slowly_is_told_so(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "HEAD_SECONDS_MAX", 0.1)
    assert ask(broker, b"GET /met").startswith(b"HTTP/1.1 408 ")


def test_one_who_leaves_early_is_forgotten(broker: BrokerThread) -> None:
    for request in (b"", b"GET /met", GET_METRICS):
        with connect(broker) as connection:
            connection.sendall(request)
    assert_serves(broker)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[contextlib.ExitStack]:
    """Connections that are held. Of places there are 12, and 3 for one address."""
    monkeypatch.setattr(endpoint, "CONNECTIONS_MAX", 12)
    monkeypatch.setattr(endpoint, "HEAD_SECONDS_MAX", 60.0)
    monkeypatch.setattr(endpoint, "HURRIED_SECONDS_MAX", 60.0)
    with contextlib.ExitStack() as held:
        yield held


def half_asked(
    broker: BrokerThread, held: contextlib.ExitStack, count: int, address: str
) -> list[socket.socket]:
    """Connections that send the first line of a request."""
    found = [held.enter_context(connect(broker, address)) for _ in range(count)]
    for connection in found:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
    return found


def test_one_address_holds_a_quarter_of_the_places(
    broker: BrokerThread, held: contextlib.ExitStack
) -> None:
    waiting = half_asked(broker, held, 3, "127.0.0.1")
    assert ask(broker, GET_METRICS).startswith(b"HTTP/1.1 503 ")
    assert ask(broker, GET_METRICS, "127.0.0.2").startswith(b"HTTP/1.1 200 ")
    for connection in waiting:
        connection.sendall(b"\r\n")
        assert read_all(connection).endswith(b"ok\n")
    eventually(
        lambda: ask(broker, GET_METRICS).startswith(b"HTTP/1.1 200 "), what="room for another"
    )
    assert_serves(broker)


def test_health_is_answered_where_all_places_are_held(
    broker: BrokerThread, held: contextlib.ExitStack
) -> None:
    for number in range(1, 5):
        half_asked(broker, held, 3, f"127.0.0.{number}")
    for address in ("127.0.0.1", "127.0.0.9"):
        assert ask(broker, GET_METRICS, address).startswith(b"HTTP/1.1 503 ")
        assert ask(broker, GET_HEALTH, address).startswith(b"HTTP/1.1 200 ")


def test_who_holds_all_that_an_address_may_is_refused_at_once_and_no_other_address(
    broker: BrokerThread, held: contextlib.ExitStack
) -> None:
    half_asked(broker, held, 3 + 3, "127.0.0.1")
    with connect(broker) as connection:
        assert read_all(connection).startswith(b"HTTP/1.1 503 ")
    assert ask(broker, GET_HEALTH, "127.0.0.2").startswith(b"HTTP/1.1 200 ")


def test_many_scrapes_at_once_are_all_answered(broker: BrokerThread) -> None:
    addresses = [f"127.0.0.{number + 1}" for number in range(endpoint.ADDRESS_PART)]
    each = endpoint.CONNECTIONS_MAX // endpoint.ADDRESS_PART
    with contextlib.ExitStack() as held:
        waiting = [
            held.enter_context(connect(broker, one)) for one in addresses for _ in range(each)
        ]
        for connection in waiting:
            connection.sendall(GET_METRICS)
        for connection in waiting:
            assert read_all(connection).startswith(b"HTTP/1.1 200 OK")


def test_a_stop_does_not_wait_for_slow_ones(broker: BrokerThread) -> None:
    with connect(broker) as connection:
        connection.sendall(b"GET /met")
        assert_serves(broker)
        assert broker.begin_stop().result(WITHIN_S)
        assert read_all(connection) == b""


def test_a_broker_that_lost_its_directory_is_not_healthy(broker: BrokerThread) -> None:
    broker.ask(lambda _: broker.server.failed.set())
    assert ask(broker, b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")


def test_a_defect_of_a_metric_is_told_and_harms_nobody(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Node) -> float:
        raise KeyError("a defect")

    defect = Family(name="millstream_x", kind="gauge", help="X.", labels=(), function=fails)
    with monkeypatch.context() as planted:
        planted.setattr(exposition, "FAMILIES", [defect])
        assert ask(broker, GET_METRICS).startswith(b"HTTP/1.1 500 ")
    assert "the metrics could not be read" in caplog.text
    assert_serves(broker)


def test_a_loop_that_was_held_up_shows_it(broker: BrokerThread) -> None:
    def late_by_more_than_half_a_second() -> float:
        scrape = Scrape(url_of(broker))
        count = scrape.value("millstream_loop_delay_seconds_count") or 0
        return count - (scrape.value("millstream_loop_delay_seconds_bucket", le="0.5") or 0)

    before = late_by_more_than_half_a_second()
    broker.ask(lambda _: time.sleep(1.2))
    eventually(lambda: late_by_more_than_half_a_second() > before, what="a late check")


# --- where it listens ---------------------------------------------------------------------------


def test_a_taken_port_is_named_and_the_broker_does_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        broker = BrokerProcess(tmp_path / "data", "--metrics-listen", where)
        broker.start()
        assert broker.wait() == 1
    assert f"metrics cannot be served on {where}: Address already in use" in broker.diagnostics
    assert "--metrics-listen" in broker.diagnostics


def test_without_the_setting_nothing_is_served(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        assert broker.server.metrics_url is None


def test_beyond_loopback_they_are_served_only_if_a_sentence_says_so(tmp_path: Path) -> None:
    options = ("--metrics-listen", "0.0.0.0:0")
    broker = BrokerProcess(tmp_path / "data", *options)
    broker.start()
    assert broker.wait() == 1
    assert OPEN_METRICS in broker.diagnostics
    broker = BrokerProcess(tmp_path / "data", *options, "--open-metrics", OPEN_METRICS)
    with broker:
        assert Scrape(broker.read_metrics_url()).value("millstream_topics") is not None
        assert broker.stop(signal.SIGTERM) == 0
