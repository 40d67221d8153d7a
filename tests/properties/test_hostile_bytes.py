"""Whatever bytes a peer sends, it alone feels it.

Its request is answered, or its connection is closed with one line that names the peer and the
reason; the broker lives, in bounded memory, without a traceback. The bytes are noise, requests of
every API and version built with our codec, and requests of real clients (tests/golden/frames); the
last two also damaged: flipped bits, cuts, sizes and counts that lie.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Producer
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import millstream.broker.apis  # noqa: F401 - fills the table of handlers
from millstream.base.errors import MillstreamError
from millstream.broker.handlers import HANDLERS
from millstream.broker.wire import ApiKey, decode_from, encode_request, read_request_header
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest
from millstream.broker.wire.messages.create_partitions import CreatePartitionsRequest
from millstream.broker.wire.messages.create_topics import CreateTopicsRequest
from tests.properties.test_wire_survives_any_bytes import mutated, random_message
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.raw_client import ConnectionClosed, RawClient, batch_of, encoded
from tests.support.waiting import eventually

GOLDEN = sorted((Path(__file__).parent.parent / "golden" / "frames").glob("*.bin"))
# Answers to these may take as long as the client allows, or other members of a group do.
MAY_WAIT = {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
# A request for so many partitions is not hostile, only slow: each is a directory, made durable.
PARTITIONS_MAX = 20
LAST = 0x7FFF_FFFF  # the correlation id of the request that follows the damaged one
MIB = 1 << 20
# What the diagnostics, caches of compiled readers and a few groups and topics may take.
GROWTH_BYTES_MAX = 48 * MIB

INT32 = struct.Struct(">i")
NASTY_SIZES = [0, -1, -2, 1, 127, 2**15, 2**24, 100 * MIB, 2**31 - 1, -(2**31)]


def examples(count: int) -> settings:
    """Each example is a conversation with one broker, which outlives them all."""
    unchecked = [HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
    return settings(max_examples=count, deadline=None, suppress_health_check=unchecked)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("hostile") / "data"
    with BrokerProcess(data_dir, "--log-level", "debug") as broker:
        yield broker


@pytest.fixture
def broker(running: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker, as healthy after the test as before."""
    assert_serves(running)
    before_bytes = running.resident_bytes
    yield running
    assert_serves(running)
    assert_no_traceback(running.diagnostics)
    grown_bytes = running.resident_bytes - before_bytes
    assert grown_bytes < GROWTH_BYTES_MAX, f"{grown_bytes >> 20} MiB more than before"


def assert_serves(broker: BrokerProcess) -> None:
    """A normal client works."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 10_000})
    outcomes: list[KafkaError | None] = []
    producer.produce("healthy", b"x", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(10) == 0
    assert outcomes == [None]


def assert_lives(broker: BrokerProcess) -> None:
    """The same, but cheap enough for every example."""
    with RawClient(broker.bootstrap) as client:
        client.metadata("healthy")


def answers_to(client: RawClient, data: bytes) -> int:
    """Send the bytes and no more; how many bytes come back before the broker closes."""
    client.send_bytes(data)
    client.socket.shutdown(socket.SHUT_WR)
    client.socket.settimeout(0.5)
    count = 0
    try:
        while some := client.socket.recv(65_536):
            count += len(some)
    except (ConnectionResetError, TimeoutError):
        pass
    return count


def assert_answered_or_named(broker: BrokerProcess, frame: bytes) -> None:
    """Send one whole frame and a good request after it.

    Either the good one is answered too, or the connection is closed and the diagnostics say why.
    """
    with RawClient(broker.bootstrap, within_s=0.3) as client:
        good = encoded(ApiVersionsRequest(), 0, LAST)
        client.send_bytes(INT32.pack(len(frame)) + frame + good)
        try:
            while INT32.unpack_from(client.read_frame())[0] != LAST:
                pass
        except ConnectionClosed:
            assert_named(broker, client.port)
        except TimeoutError:
            assert read_request_header(frame).api_key in MAY_WAIT


def assert_named(broker: BrokerProcess, port: int) -> None:
    line = f"connection 127.0.0.1:{port} closed: "
    deadline = time.monotonic() + 0.5
    while line not in broker.diagnostics:
        assert time.monotonic() < deadline, f"closed without a line about port {port}"
        time.sleep(0.01)


def is_slow(frame: bytes) -> bool:
    """Whether it asks for more partitions than a test has time for."""
    try:
        header = read_request_header(frame)
        handler = HANDLERS[header.api_key]
        request, _ = decode_from(
            handler.request_class, header.api_version, frame, header.body_position
        )
    except (MillstreamError, KeyError):
        return False
    counts = [0]
    if isinstance(request, CreateTopicsRequest):
        counts += [max(one.num_partitions, len(one.assignments)) for one in request.topics]
    if isinstance(request, CreatePartitionsRequest):
        counts += [one.count for one in request.topics]
    return max(counts) > PARTITIONS_MAX


# --- noise --------------------------------------------------------------------------------------


@examples(150)
@given(data=st.binary(max_size=300))
def test_noise(broker: BrokerProcess, data: bytes) -> None:
    with RawClient(broker.bootstrap) as client:
        answers_to(client, data)
    assert_lives(broker)


@examples(150)
@given(
    api_key=st.one_of(st.sampled_from(sorted(HANDLERS)), st.integers(-(2**15), 2**15 - 1)),
    version=st.integers(-2, 20),
    rest=st.binary(max_size=200),
)
def test_noise_behind_a_header(
    broker: BrokerProcess, api_key: int, version: int, rest: bytes
) -> None:
    assert_answered_or_named(broker, struct.pack(">hh", api_key, version) + rest)


# --- requests, whole and damaged ----------------------------------------------------------------


def damaged(frame: bytes, random: Random) -> bytes:
    """A flipped bit, a cut, bytes with a meaning in a wrong place, or a size or count that lies."""
    match random.randrange(4):
        case 0:
            bit = random.randrange(8 * len(frame))
            changed = bytearray(frame)
            changed[bit // 8] ^= 1 << bit % 8
            return bytes(changed)
        case 1:
            return frame[: random.randrange(len(frame))]
        case 2:
            return mutated(frame, random)
    place = random.randrange(max(1, len(frame) - 4))
    return frame[:place] + INT32.pack(random.choice(NASTY_SIZES)) + frame[place + 4 :]


def test_every_api_in_every_version(broker: BrokerProcess) -> None:
    random = Random(3)
    for handler in HANDLERS.values():
        for version in handler.versions:
            message = random_message(handler.request_class, version, random)
            frame = b"".join(encode_request(message, version, 1, "hostile"))[INT32.size :]
            for request in (frame, *[damaged(frame, random) for _ in range(3)]):
                if not is_slow(request):
                    assert_answered_or_named(broker, request)


@examples(400)
@given(path=st.sampled_from(GOLDEN), seed=st.integers(0, 2**32))
def test_requests_of_real_clients_damaged(broker: BrokerProcess, path: Path, seed: int) -> None:
    frame = damaged(path.read_bytes(), Random(seed))
    assume(not is_slow(frame))
    assert_answered_or_named(broker, frame)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_requests_of_real_clients_are_understood(running: BrokerProcess, path: Path) -> None:
    """Undamaged they are answered, so that the damage above is what was refused."""
    with RawClient(running.bootstrap, within_s=5) as client:
        frame = path.read_bytes()
        client.send_bytes(INT32.pack(len(frame)) + frame)
        answer = client.read_frame()
    assert INT32.unpack_from(answer)[0] == read_request_header(frame).correlation_id


@examples(100)
@given(
    path=st.sampled_from(GOLDEN),
    size=st.one_of(st.sampled_from(NASTY_SIZES), st.integers(0, 400)),
)
def test_sizes_that_lie(broker: BrokerProcess, path: Path, size: int) -> None:
    with RawClient(broker.bootstrap) as client:
        answers_to(client, INT32.pack(size) + path.read_bytes())
    assert_lives(broker)


# --- slow, many, half ---------------------------------------------------------------------------


def test_half_requests_of_many_connections_take_bounded_memory(broker: BrokerProcess) -> None:
    """200 times a promise of 100 MiB: 20 GiB, if each were believed."""
    before_bytes = broker.resident_bytes
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(200)]
        for client in clients:
            client.send_bytes(INT32.pack(100 * MIB) + bytes(50_000))
        for size in (10, 60_000):  # one that needs no leave for its memory, and one that does
            with RawClient(broker.bootstrap) as other:
                answer = other.produce("healthy", batch_of(bytes(size)))
                assert answer.error_code == 0
        assert_serves(broker)
        grown_bytes = broker.resident_bytes - before_bytes
        assert grown_bytes < GROWTH_BYTES_MAX, f"{grown_bytes >> 20} MiB more than before"


def test_requests_that_come_byte_by_byte_are_understood(broker: BrokerProcess) -> None:
    frame = encoded(ApiVersionsRequest(), 0, LAST)
    with RawClient(broker.bootstrap) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame * 3:
            client.send_bytes(bytes([byte]))
        for _ in range(3):
            assert INT32.unpack_from(client.read_frame())[0] == LAST


def test_connections_that_come_and_go_leave_nothing(broker: BrokerProcess) -> None:
    descriptors = Path(f"/proc/{broker.pid}/fd")
    before = len(list(descriptors.iterdir()))
    for number in range(300):
        with RawClient(broker.bootstrap) as client:
            client.send_bytes(bytes(number % 7))
    eventually(
        lambda: len(list(descriptors.iterdir())) <= before + 2, what="no descriptor kept open"
    )
