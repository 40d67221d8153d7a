"""Bad input: each gets an error that names the thing, and nothing else is harmed.

Every test ends with another topic, on another connection, that works as before.
"""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from millstream.base.disk import RealDisk
from millstream.base.record import Record
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.broker.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.broker.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.broker.wire.messages.produce import ProduceResponse
from millstream.log.checked_files import save_checked
from millstream.log.record_batch import CHECKED_FROM, CONTROL, CRC_AT, HEADER_BYTES, encode_batch
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.raw_client import (
    METADATA_VERSION,
    PRODUCE_VERSION,
    ConnectionClosed,
    RawClient,
    batch_of,
    encoded,
    produce_request,
)

TOPIC = "orders"
OTHER = "healthy"
MESSAGE_BYTES_MAX = 100_000
EXIT_REFUSED, EXIT_BAD_SETTING, EXIT_DISK = 1, 2, 74


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("bad-input") / "data"
    limit = str(MESSAGE_BYTES_MAX)
    with BrokerProcess(data_dir, "--message-bytes-max", limit) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            client.create_topic(OTHER)
            assert client.produce(TOPIC, batch_of(b"first", b"second")).error_code == 0
        yield broker
        assert_no_traceback(broker.diagnostics)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client
    assert_unharmed(broker)


def assert_unharmed(broker: BrokerProcess) -> None:
    with RawClient(broker.bootstrap) as other:
        written = other.produce(OTHER, batch_of(b"fine"))
        assert written.error_code == 0
        seen = other.fetch(OTHER, written.base_offset)
        assert b"fine" in seen.records
        assert other.fetch(TOPIC, 0).high_watermark == 2


# --- names --------------------------------------------------------------------------------------

BAD_NAMES = {
    "": "empty",
    ".": "'.' and '..' are not allowed",
    "..": "'.' and '..' are not allowed",
    "../escape": "only a-z, A-Z, 0-9",
    "a/b": "only a-z, A-Z, 0-9",
    "a\x00b": "only a-z, A-Z, 0-9",
    "a\n": "only a-z, A-Z, 0-9",
    "größe": "only a-z, A-Z, 0-9",
    "注文": "only a-z, A-Z, 0-9",
    "x" * 250: "longer than 249 characters",
}


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:12]))
def test_a_topic_with_an_impossible_name_is_refused(client: RawClient, name: str) -> None:
    [answer] = client.try_to_create_topic(name).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert BAD_NAMES[name] in (answer.error_message or "")
    assert repr(name) in (answer.error_message or "")
    assert client.metadata(name, may_create=True).topics[0].error_code in (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert client.produce(name, batch_of(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_no_name_leaves_the_data_directory(broker: BrokerProcess, client: RawClient) -> None:
    around = set(os.listdir(broker.data_dir.parent))
    for name in ("../escape", "..", "/tmp/escape", "a/../../escape"):
        client.try_to_create_topic(name)
        client.metadata(name, may_create=True)
    assert set(os.listdir(broker.data_dir.parent)) == around


def test_the_longest_name_can_be_created_written_and_deleted(client: RawClient) -> None:
    name = "x" * 249
    client.create_topic(name)
    assert client.produce(name, batch_of(b"x")).error_code == 0
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    [answer] = client.call(request, DeleteTopicsResponse, 6).responses
    assert (answer.error_code, answer.error_message) == (0, None)
    assert client.metadata(name).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_differ_only_in_dots_and_underscores_are_refused(client: RawClient) -> None:
    client.create_topic("a.b")
    [answer] = client.try_to_create_topic("a_b").topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "'a.b'" in (answer.error_message or "")


def test_a_topic_that_exists_is_named(client: RawClient) -> None:
    [answer] = client.try_to_create_topic(TOPIC).topics
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert f"topic '{TOPIC}' already exists" in (answer.error_message or "")


@pytest.mark.parametrize("count", [0, -2, 10_001, 2**31 - 1])
def test_an_impossible_number_of_partitions_is_refused(client: RawClient, count: int) -> None:
    [answer] = client.try_to_create_topic("many", partitions=count).topics
    assert answer.error_code == ErrorCode.INVALID_PARTITIONS
    assert str(count) in (answer.error_message or "")
    more = CreatePartitionsTopic(name=TOPIC, count=count)
    request = CreatePartitionsRequest(topics=[more], timeout_ms=10_000)
    [result] = client.call(request, CreatePartitionsResponse, 3).results
    assert result.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("retention.ms", "soon", "whole number"),
        ("segment.bytes", "1", "from 14"),
        ("cleanup.policy", "shred", "delete, compact"),
        ("no.such.thing", "1", "no such topic config"),
    ],
)
def test_a_wrong_config_is_named(client: RawClient, name: str, value: str, reason: str) -> None:
    [answer] = client.try_to_create_topic("configured", config={name: value}).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert f"{name}='{value}'" in (answer.error_message or "")
    assert reason in (answer.error_message or "")


# --- topics, partitions, offsets ----------------------------------------------------------------


def test_an_unknown_topic_is_named(client: RawClient) -> None:
    answer = client.produce("nowhere", batch_of(b"x"))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'nowhere' does not exist" in (answer.error_message or "")
    seen = client.fetch("nowhere", 0)
    assert seen.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = client.metadata("nowhere").topics[0]
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1])
def test_an_unknown_partition_is_named(client: RawClient, partition: int) -> None:
    answer = client.produce(TOPIC, batch_of(b"x"), partition=partition)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert f"no partition {partition}" in (answer.error_message or "")
    seen = client.fetch(TOPIC, 0, partition=partition)
    assert seen.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("offset", [-1, -(2**63), 3, 2**63 - 1])
def test_an_offset_outside_of_the_log_is_out_of_range(client: RawClient, offset: int) -> None:
    seen = client.fetch(TOPIC, offset)
    assert seen.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset", [3, 2**63 - 1, -2])
def test_records_cannot_be_deleted_past_the_end(client: RawClient, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
    [answer] = client.call(request, DeleteRecordsResponse, 2).topics
    assert answer.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_time_that_no_record_has_finds_nothing(client: RawClient) -> None:
    for timestamp in (2**63 - 1, -(2**63), -6):
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        [answer] = client.call(request, ListOffsetsResponse, 7).topics
        assert answer.partitions[0].offset in (-1, 0), timestamp


def test_an_offset_of_an_unknown_topic_cannot_be_committed(client: RawClient) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="nowhere", partitions=[partition])],
    )
    [answer] = client.call(request, OffsetCommitResponse, 8).topics
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__millstream_metadata"])
def test_the_brokers_own_topics_cannot_be_written_or_deleted(client: RawClient, topic: str) -> None:
    answer = client.produce(topic, batch_of(b"x"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic in (answer.error_message or "")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    [deleted] = client.call(request, DeleteTopicsResponse, 6).responses
    assert deleted.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic in (deleted.error_message or "")


# --- batches ------------------------------------------------------------------------------------

LAST_OFFSET_DELTA_AT = 23
PRODUCER_AT = 43
RECORD_COUNT_AT = 57
BATCH_LENGTH_AT = 8
MAGIC_AT = 16

Damage = Callable[[bytearray], bytearray]


def resealed(batch: bytearray) -> bytearray:
    """The checksum computed anew: what follows is a lie, not damage."""
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[CHECKED_FROM:])))
    return batch


def with_field(position: int, form: str, value: int) -> Damage:
    def change(batch: bytearray) -> bytearray:
        struct.pack_into(form, batch, position, value)
        return resealed(batch) if position >= CHECKED_FROM else batch

    return change


def with_flipped_bit(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def with_producer(producer_id: int, epoch: int, sequence: int) -> Damage:
    def change(batch: bytearray) -> bytearray:
        struct.pack_into(">qhi", batch, PRODUCER_AT, producer_id, epoch, sequence)
        return resealed(batch)

    return change


BAD_BATCHES: dict[str, tuple[Damage, ErrorCode, str]] = {
    "a flipped bit": (with_flipped_bit, ErrorCode.CORRUPT_MESSAGE, "checksum"),
    "an old format": (
        with_field(MAGIC_AT, ">b", 1),
        ErrorCode.CORRUPT_MESSAGE,
        "format 1",
    ),
    "a length of nothing": (
        with_field(BATCH_LENGTH_AT, ">i", 0),
        ErrorCode.CORRUPT_MESSAGE,
        "length 0",
    ),
    "a negative length": (
        with_field(BATCH_LENGTH_AT, ">i", -1),
        ErrorCode.CORRUPT_MESSAGE,
        "length -1",
    ),
    "a length past the end": (
        with_field(BATCH_LENGTH_AT, ">i", 2**31 - 1),
        ErrorCode.CORRUPT_MESSAGE,
        "bytes long",
    ),
    "half a header": (
        lambda batch: batch[: HEADER_BYTES - 1],
        ErrorCode.CORRUPT_MESSAGE,
        "too few for a header",
    ),
    "no records at all": (lambda batch: bytearray(), ErrorCode.INVALID_RECORD, "no records"),
    "two batches": (lambda batch: batch * 2, ErrorCode.INVALID_RECORD, "exactly one batch"),
    "bytes behind it": (lambda batch: batch + b"x", ErrorCode.INVALID_RECORD, "exactly one batch"),
    "more records than offsets": (
        with_field(RECORD_COUNT_AT, ">i", 5),
        ErrorCode.INVALID_RECORD,
        "5 records",
    ),
    "no record in it": (
        with_field(RECORD_COUNT_AT, ">i", 0),
        ErrorCode.INVALID_RECORD,
        "0 records",
    ),
    "a negative record count": (
        with_field(RECORD_COUNT_AT, ">i", -1),
        ErrorCode.INVALID_RECORD,
        "-1 records",
    ),
    "a control batch": (
        with_field(CHECKED_FROM, ">h", CONTROL),
        ErrorCode.INVALID_RECORD,
        "control batches",
    ),
    "an unknown codec": (
        with_field(CHECKED_FROM, ">h", 7),
        ErrorCode.INVALID_RECORD,
        "codec 7",
    ),
    "the broker's time stamp": (
        with_field(CHECKED_FROM, ">h", 1 << 3),
        ErrorCode.INVALID_RECORD,
        "append time",
    ),
    "a negative sequence": (
        with_producer(7, 0, -1),
        ErrorCode.INVALID_RECORD,
        "without a sequence",
    ),
    "a negative epoch": (with_producer(7, -1, 0), ErrorCode.INVALID_RECORD, "without an epoch"),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_is_refused(client: RawClient, what: str) -> None:
    damage, code, reason = BAD_BATCHES[what]
    batch = damage(bytearray(batch_of(b"one", b"two")))
    answer = client.produce(TOPIC, bytes(batch))
    assert answer.error_code == code, answer.error_message
    assert reason in (answer.error_message or "")
    assert answer.base_offset == -1


def test_the_undamaged_batch_is_taken(client: RawClient) -> None:
    """Else the test above would prove nothing."""
    assert client.produce(OTHER, batch_of(b"one", b"two")).error_code == 0


def test_a_batch_at_the_limit_is_taken_and_a_larger_one_is_named(client: RawClient) -> None:
    surplus = len(batch_of(bytes(MESSAGE_BYTES_MAX))) - MESSAGE_BYTES_MAX
    largest = batch_of(bytes(MESSAGE_BYTES_MAX - surplus))
    assert len(largest) == MESSAGE_BYTES_MAX
    assert client.produce(OTHER, largest).error_code == 0
    answer = client.produce(TOPIC, batch_of(bytes(MESSAGE_BYTES_MAX - surplus + 1)))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"{TOPIC}-0" in (answer.error_message or "")
    assert f"max.message.bytes={MESSAGE_BYTES_MAX}" in (answer.error_message or "")


def test_a_gap_in_a_producers_sequence_is_refused(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer_id = client.call(request, InitProducerIdResponse, 4).producer_id

    def numbered(sequence: int, epoch: int = 0) -> bytes:
        return bytes(
            encode_batch(
                [Record(value=b"x", timestamp_ms=1_000)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )

    first = client.produce(OTHER, numbered(0, epoch=1))
    assert first.error_code == 0
    gap = client.produce(OTHER, numbered(2, epoch=1))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert f"producer {producer_id}: sequence 2 arrived where 1" in (gap.error_message or "")
    stale = client.produce(OTHER, numbered(1, epoch=0))
    assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    repeated = client.produce(OTHER, numbered(0, epoch=1))
    assert (repeated.error_code, repeated.base_offset) == (0, first.base_offset)


def test_a_refused_batch_without_an_answer_closes_the_connection(
    broker: BrokerProcess, client: RawClient
) -> None:
    """With acks=0 there is no answer that could carry the error."""
    client.send(produce_request("nowhere", batch_of(b"x"), acks=0), PRODUCE_VERSION)
    assert client.is_closed()
    assert f"127.0.0.1:{client.port} closed: nowhere-0" in broker.diagnostics


@pytest.mark.parametrize("acks", [2, -2])
def test_an_unknown_number_of_acks_is_refused(client: RawClient, acks: int) -> None:
    request = produce_request(TOPIC, batch_of(b"x"), acks=acks)
    answer = client.call(request, ProduceResponse, PRODUCE_VERSION)
    code = answer.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.INVALID_REQUIRED_ACKS


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [99, 5, -1])
def test_an_unknown_version_of_api_versions_is_answered_with_what_is_known(
    client: RawClient, version: int
) -> None:
    """KIP-511: the answer is in version 0, so that any client can read it."""
    client.send_bytes(with_version(encoded(ApiVersionsRequest(), 3, 77), version))
    correlation_id, answer = client.receive(ApiVersionsResponse, 0)
    assert correlation_id == 77
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {offer.api_key for offer in answer.api_keys} >= {0, 1, 3, 18}
    # The connection goes on with a version that we do offer.
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    assert client.call(request, ApiVersionsResponse, 3).error_code == 0


@pytest.mark.parametrize(
    ("name", "version", "is_one"),
    [
        ("apache-kafka-java", "4.1.0", True),
        ("librdkafka", "v2.12.0-17-g6b5e2c.dirty", True),
        ("a", "1", True),
        ("", "1.0", False),
        ("kafka", "", False),
        ("-kafka", "1.0", False),
        ("kafka", "1.0.", False),
        ("kafka client", "1.0", False),
        ("kafka", "1.0+local", False),
        ("kafka\n", "1.0", False),
    ],
)
def test_a_client_software_that_is_no_name_is_refused_as_kafka_does(
    client: RawClient, name: str, version: str, is_one: bool
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    for api_version in (3, 4):
        answer = client.call(request, ApiVersionsResponse, api_version)
        assert answer.error_code == (ErrorCode.NONE if is_one else ErrorCode.INVALID_REQUEST)
        assert bool(answer.api_keys) == is_one
    assert client.call(ApiVersionsRequest(), ApiVersionsResponse, 2).error_code == 0


def with_version(frame: bytes, version: int) -> bytes:
    return frame[:6] + struct.pack(">h", version) + frame[8:]


def with_api_key(frame: bytes, api_key: int) -> bytes:
    return frame[:4] + struct.pack(">h", api_key) + frame[6:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda frame: with_version(frame, 99), "API 0 version 99 is not offered"),
        (lambda frame: with_version(frame, 2), "API 0 version 2 is not offered"),
        (lambda frame: with_api_key(frame, 999), "API 999 version 12 is not offered"),
        (lambda frame: with_api_key(frame, 4), "API 4 version 12 is not offered"),
    ],
)
def test_an_api_or_version_that_is_not_offered_closes_the_connection(
    broker: BrokerProcess, client: RawClient, change: Callable[[bytes], bytes], reason: str
) -> None:
    frame = encoded(produce_request(TOPIC, batch_of(b"x")), PRODUCE_VERSION)
    client.send_bytes(change(frame))
    assert client.is_closed()
    assert f"127.0.0.1:{client.port} closed: {reason}" in broker.diagnostics


def test_a_request_before_a_bad_one_is_still_answered(client: RawClient) -> None:
    """Closing a connection must not take back what was asked before."""
    good = encoded(produce_request(OTHER, batch_of(b"x")), PRODUCE_VERSION, 1)
    client.send_bytes(good + with_api_key(good, 999))
    correlation_id, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert (correlation_id, answer.responses[0].partition_responses[0].error_code) == (1, 0)
    with pytest.raises(ConnectionClosed):
        client.read_frame()


def test_a_malformed_request_names_the_message_and_the_place(
    broker: BrokerProcess, client: RawClient
) -> None:
    client.send_bytes(struct.pack(">ihhih", 11, 3, METADATA_VERSION, 1, -1) + b"\0")
    assert client.is_closed()
    line = f"127.0.0.1:{client.port} closed: malformed request: MetadataRequest v12"
    assert line in broker.diagnostics


# --- starting -----------------------------------------------------------------------------------


def refusal(broker: BrokerProcess) -> tuple[int, str]:
    """Start a broker that cannot; returns its exit code and the one line that it says."""
    broker.start()
    exit_code = broker.wait()
    assert broker.ready_line == b""
    assert_no_traceback(broker.diagnostics)
    lines = [line for line in broker.diagnostics.splitlines() if line.startswith("millstream: ")]
    assert len(lines) == 1, broker.diagnostics
    return exit_code, lines[0]


def test_a_busy_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        exit_code, line = refusal(BrokerProcess(tmp_path / "data", listen=f"127.0.0.1:{port}"))
    assert exit_code == EXIT_REFUSED
    assert f"127.0.0.1:{port} is in use" in line


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    exit_code, line = refusal(BrokerProcess(tmp_path / "data", listen="192.0.2.1:9092"))
    assert exit_code == EXIT_REFUSED
    assert "192.0.2.1:9092" in line


def test_a_locked_directory_names_its_owner(broker: BrokerProcess) -> None:
    second = BrokerProcess(broker.data_dir, stderr_path=broker.data_dir.with_name("second"))
    exit_code, line = refusal(second)
    assert exit_code == EXIT_REFUSED
    assert str(broker.data_dir) in line
    assert f"process {broker.pid}" in line
    assert_unharmed(broker)


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"not a directory")
    exit_code, line = refusal(BrokerProcess(tmp_path / "data"))
    assert exit_code == EXIT_DISK
    assert f"{tmp_path / 'data'}: cannot be used" in line
    assert (tmp_path / "data").read_bytes() == b"not a directory"


def test_a_directory_without_rights_is_named(tmp_path: Path) -> None:
    """Root may write anywhere, so the rights are those of a file system that nobody may write."""
    exit_code, line = refusal(
        BrokerProcess(Path("/proc/self/millstream"), stderr_path=tmp_path / "stderr")
    )
    assert exit_code == EXIT_DISK
    assert "/proc/self/millstream: cannot be used" in line


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir):
        pass
    meta = data_dir / "millstream.json"
    newer = meta.read_bytes().replace(b'"format": 1', b'"format": 2')
    assert b'"format": 2' in newer
    save_checked(RealDisk(), meta, newer)
    exit_code, line = refusal(BrokerProcess(data_dir))
    assert exit_code == EXIT_REFUSED
    assert f"{data_dir}: written in format 2, this version knows up to 1" in line
    assert meta.read_bytes() == newer


def test_a_damaged_identity_file_is_named(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with BrokerProcess(data_dir):
        pass
    save_checked(RealDisk(), data_dir / "millstream.json", b"{")
    exit_code, line = refusal(BrokerProcess(data_dir))
    assert exit_code == EXIT_DISK
    assert str(data_dir / "millstream.json") in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--listen", "nowhere"), "listen: 'nowhere'"),
        (("--segment-bytes", "big"), "segment_bytes: 'big'"),
        (("--connections-max", "0"), "connections_max: '0'"),
        (("--sasl", "--super-users", "User:x"), "--sasl has no value before --super-users"),
        (("--allow-without-acl", "--super-users", "User:x"), "none are in force"),
        (("--super-users", "User:x"), "Give sasl or tls_client_ca"),
        (("--allow-without-acl",), "allow_without_acl is for access rules, and none"),
        (("--frame-bytes-max", "64KiB", "--message-bytes-max", "1MiB"), "raise frame_bytes_max"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    exit_code, line = refusal(BrokerProcess(tmp_path / "data", *options))
    assert exit_code == EXIT_BAD_SETTING
    assert words in line
    assert not (tmp_path / "data").exists(), "nothing was begun"
