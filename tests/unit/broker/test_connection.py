"""A connection without a socket: what it owes, and what happens to it when its client goes."""

import logging

import pytest

from millstream.base.record import Record
from millstream.broker.server import BrokerServer
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import Message, decode_response, encode_request
from millstream.broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest
from millstream.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.broker.wire.messages.delete_topics import DeleteTopicsRequest
from millstream.broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.log.record_batch import TRANSACTIONAL, encode_batch
from tests.support.batches import NOW_MS
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode, produce_request
from tests.support.socketless_client import SocketlessClient
from tests.support.transactions import Producer


@pytest.fixture
def client(served: ServedNode) -> SocketlessClient:
    return SocketlessClient(served)


def long_poll(max_wait_ms: int = 60_000) -> FetchRequest:
    place = FetchPartition(partition=0, partition_max_bytes=1_000)
    topic = FetchTopic(topic="orders", partitions=[place])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic])


def create_request(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def test_answers_leave_in_the_order_of_the_requests(
    served: ServedNode, client: SocketlessClient
) -> None:
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


def test_a_long_poll_ends_with_its_connection(served: ServedNode, client: SocketlessClient) -> None:
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
    client = SocketlessClient(served)
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
    client = SocketlessClient(served)
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
    served: ServedNode, client: SocketlessClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        client.send(produce_request(b"a", topic="nothing", acks=0), 12)
    assert client.transport.is_closed
    assert "192.0.2.7:5 closed: nothing-0: records sent with acks=0 are refused" in caplog.text
    served.turn()


def test_a_produce_without_acks_has_no_answer(served: ServedNode, client: SocketlessClient) -> None:
    served.create()
    client.send(produce_request(b"a", acks=0), 12)
    served.settle()
    assert client.answers() == []
    assert not client.transport.is_closed
    assert not client.connection.has_open_requests
    client.go()


def test_past_the_limit_of_unanswered_requests_the_socket_is_not_read(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(requests_in_flight_max=2, disk=gate)
    (partition,) = served.create().partitions
    client = SocketlessClient(served)
    gate.shut()
    client.send_bytes(pipelined(*[(produce_request(b"a"), 12)] * 2))
    served.turn()
    assert not client.transport.is_paused
    client.send_bytes(pipelined((produce_request(b"a"), 12)))
    assert client.transport.is_paused
    assert partition.log.end_offset == 2
    gate.open_gate()
    client.until_answered(3)
    assert not client.transport.is_paused
    client.go()


def test_one_that_asks_much_at_once_lets_others_go_first(
    served: ServedNode, client: SocketlessClient, monkeypatch: pytest.MonkeyPatch
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
            SocketlessClient(served).send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            served.turn()
    assert len([line for line in caplog.messages if "a request of" in line]) == 1


def test_one_that_is_closed_and_takes_nothing_is_cut_off(served: ServedNode) -> None:
    client = SocketlessClient(served)
    client.transport.keeps_open = True
    client.connection.close()
    served.turn()
    assert served.node.connections
    BrokerServer.close_idle(None, served.node, now_ms=served.now_ms)  # type: ignore[arg-type]
    served.turn()
    assert not served.node.connections


# --- requests that come together (pipelined) ---------------------------------------------------


def transactional(who: Identity, **sequences: int) -> ProduceRequest:
    """One record for each of these topics, with these sequence numbers."""
    record = [Record(value=b"one", timestamp_ms=NOW_MS)]
    return ProduceRequest(
        transactional_id="tx",
        acks=-1,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(
                        index=0,
                        records=encode_batch(
                            record,
                            producer_id=who.producer_id,
                            producer_epoch=who.epoch,
                            base_sequence=sequence,
                            attributes=TRANSACTIONAL,
                        ),
                    )
                ],
            )
            for topic, sequence in sequences.items()
        ],
    )


def pipelined(*requests: tuple[Message, int]) -> bytes:
    """These requests and their versions as the bytes of one write."""
    return b"".join(
        b"".join(encode_request(request, version, correlation_id=number, client_id="ada"))
        for number, (request, version) in enumerate(requests)
    )


def codes_of(answer: bytes) -> list[int]:
    _, response = decode_response(ProduceResponse, 12, answer)
    return [one.partition_responses[0].error_code for one in response.responses]


def test_a_write_that_adds_a_partition_is_not_overtaken_by_those_after_it(
    served: ServedNode, client: SocketlessClient
) -> None:
    """Within a transaction, as Java's producers send them (KIP-890)."""
    served.create("j")
    served.create("x")
    producer = Producer(served)
    producer.init()
    assert producer.write("j", b"zero") == 0
    who = producer.who
    writes = [transactional(who, j=1, x=0), transactional(who, j=2), transactional(who, j=3)]
    client.send_bytes(pipelined(*((write, 12) for write in writes)))
    answers = client.until_answered(3)
    assert [codes_of(answer) for answer in answers] == [[0, 0], [0], [0]]


def test_a_write_over_another_connection_does_not_overtake_one_that_adds_a_partition(
    served: ServedNode, client: SocketlessClient
) -> None:
    """A producer that has lost its connection goes on with the next one."""
    served.create("j")
    served.create("x")
    producer = Producer(served)
    producer.init()
    assert producer.write("j", b"zero") == 0
    other = SocketlessClient(served)

    async def write_to_both() -> None:  # in one turn of the loop
        client.deliver(pipelined((transactional(producer.who, j=1, x=0), 12)))
        other.deliver(pipelined((transactional(producer.who, j=2), 12)))

    served.run(write_to_both())
    assert codes_of(client.until_answered(1)[0]) == [0, 0]
    assert codes_of(other.until_answered(1)[0]) == [0]


def test_a_request_sees_what_the_one_before_it_has_changed(
    served: ServedNode, client: SocketlessClient
) -> None:
    """The change waits for the disk, the question does not; yet it is asked after it."""
    client.send_bytes(
        pipelined(
            (create_request("new"), 4),
            (MetadataRequest(topics=None, allow_auto_topic_creation=False), 9),
        )
    )
    _, answer = decode_response(MetadataResponse, 9, client.until_answered(2)[1])
    assert "new" in [topic.name for topic in answer.topics or []]


def test_a_fetch_sees_the_records_written_before_it_on_the_same_connection(
    served: ServedNode, client: SocketlessClient
) -> None:
    served.create()
    client.send_bytes(pipelined((produce_request(b"a"), 12), (long_poll(0), 12)))
    _, answer = decode_response(FetchResponse, 12, client.until_answered(2)[1])
    assert answer.responses[0].partitions[0].high_watermark == 1


def test_plain_writes_do_not_wait_for_one_another(serve: Serve, gate: GatedDisk) -> None:
    """They are appended as they come, and share a sync."""
    served = serve(disk=gate)
    (partition,) = served.create().partitions
    client = SocketlessClient(served)
    gate.shut()
    client.send_bytes(pipelined(*[(produce_request(b"a"), 12)] * 5))
    served.turn()
    assert partition.log.end_offset == 5
    assert client.answers() == []
    gate.open_gate()
    client.until_answered(5)


def test_the_key_of_a_large_request_is_waited_for(served: ServedNode) -> None:
    """Whether it must wait is in its first bytes, which may come later than its size."""
    served.create()
    client = SocketlessClient(served)
    create = create_request("new")
    create.topics *= 4_000  # more than the connection's own buffer; named twice, so refused
    data = pipelined((produce_request(b"a"), 12), (create, 4))
    start = len(pipelined((produce_request(b"a"), 12)))
    for cut in (data[: start + 5], data[start + 5 : start + 7], data[start + 7 :]):
        client.send_bytes(cut)
    assert [answer[:4] for answer in client.until_answered(2)] == [bytes(4), bytes(3) + b"\1"]


# --- throttled fetch sessions -------------------------------------------------------------------

BYTES_PER_SECOND = 100.0
TOO_MUCH = b"t" * 20_000


def limit_fetches(served: ServedNode) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="ada")]
    ops = [OpData(key="consumer_byte_rate", value=BYTES_PER_SECOND)]
    request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=ops)])
    served.run(served.node.quotas.alter(request))


def fetched(served: ServedNode, client: SocketlessClient, request: FetchRequest) -> FetchResponse:
    before = len(client.answers())
    client.send(request, 12)
    answer: FetchResponse = decode_response(
        FetchResponse, 12, client.until_answered(before + 1)[before]
    )[1]
    served.advance(answer.throttle_time_ms / 1_000)
    return answer


def test_a_fetch_session_goes_on_when_its_client_is_throttled(
    served: ServedNode, client: SocketlessClient
) -> None:
    served.create()
    limit_fetches(served)
    poll = long_poll(0)
    poll.session_epoch = 0
    session_id = fetched(served, client, poll).session_id
    served.produce(TOO_MUCH)
    go_on = FetchRequest(session_id=session_id, session_epoch=1)
    told = fetched(served, client, go_on)
    assert told.throttle_time_ms > 0
    assert (told.session_id, told.responses) == (session_id, [])
    assert len(served.node.fetch_sessions) == 1
    go_on = FetchRequest(session_id=session_id, session_epoch=2)
    (kept,) = served.ask(go_on, 12).responses
    assert kept.partitions[0].high_watermark == 1


def test_high_watermarks_that_a_throttled_answer_did_not_bring_come_again(
    served: ServedNode, client: SocketlessClient
) -> None:
    served.create()
    poll = long_poll(0)
    poll.session_epoch = 0
    session_id = fetched(served, client, poll).session_id
    at_the_end = long_poll(0).topics
    at_the_end[0].partitions[0].fetch_offset = 1
    served.produce(TOO_MUCH)
    moved = FetchRequest(session_id=session_id, session_epoch=1, topics=at_the_end)
    answer = served.ask(moved, 12)
    assert answer.responses[0].partitions[0].high_watermark == 1
    assert served.node.fetch_sessions.take_back(answer) == session_id
    moved = FetchRequest(session_id=session_id, session_epoch=2)
    assert served.ask(moved, 12).responses[0].partitions[0].high_watermark == 1


def test_a_throttled_client_leaves_no_fetch_sessions_behind(
    served: ServedNode, client: SocketlessClient
) -> None:
    served.create()
    served.produce(TOO_MUCH)
    limit_fetches(served)
    poll = long_poll(0)
    poll.session_epoch = 0
    for _ in range(3):
        told = fetched(served, client, poll)
        assert told.throttle_time_ms > 0
        assert (told.session_id, told.responses) == (0, [])
    assert len(served.node.fetch_sessions) == 0
