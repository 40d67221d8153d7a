import pytest

from millstream.base.record import Record
from millstream.broker.apis.api_00_produce import UnansweredProduceRefused
from millstream.broker.handlers import HANDLERS, Call
from millstream.broker.topics import METADATA_TOPIC
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from millstream.log.record_batch import Codec, encode_batch
from millstream.log.record_faults import NAMED_MAX
from tests.support.batches import NOW_MS, batch
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import CLIENT_ID, PEER, Serve, ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk


def only(answer: object) -> PartitionProduceResponse:
    (one,) = answer.responses[0].partition_responses  # type: ignore[attr-defined] # a ProduceResponse
    assert isinstance(one, PartitionProduceResponse)
    return one


def code_of(served: ServedNode, request: ProduceRequest) -> int:
    return only(served.ask(request)).error_code


def test_batches_get_offsets_one_after_another(served: ServedNode) -> None:
    served.create()
    assert [served.produce(b"a", b"b"), served.produce(b"c")] == [0, 2]


def test_with_acks_all_the_answer_waits_for_the_sync(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(produce_request(b"a"))
    gate.until_a_sync_waits()
    served.turn()
    assert not task.done()
    gate.open_gate()
    served.settle()
    assert only(task.result()).base_offset == 0


def test_with_acks_one_the_answer_does_not_wait(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(produce_request(b"a", acks=1))
    assert only(task.result()).error_code == ErrorCode.NONE
    gate.open_gate()
    served.settle()


def test_an_answer_for_several_partitions_waits_for_all_of_them(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create("orders", 2)
    places = [PartitionProduceData(index=n, records=batch(b"x")) for n in (0, 1, 7)]
    data = TopicProduceData(name="orders", partition_data=places)
    gate.shut()
    task = served.ask_soon(ProduceRequest(acks=-1, topic_data=[data]))
    gate.until_a_sync_waits()
    assert not task.done()
    gate.open_gate()
    served.settle()
    codes = [one.error_code for one in task.result().responses[0].partition_responses]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_batch_that_was_sent_before_gets_its_first_offset_again(served: ServedNode) -> None:
    served.create()
    request = produce_request(b"a", producer_id=7, sequence=0)
    assert only(served.ask(request)).base_offset == 0
    served.produce(b"other")
    assert only(served.ask(produce_request(b"a", producer_id=7, sequence=0))).base_offset == 0
    assert served.node.topics.named("orders").partitions[0].log.end_offset == 2


def test_a_repeated_batch_is_answered_only_once_the_first_is_synced(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    tasks = [served.ask_soon(produce_request(b"a", producer_id=7, sequence=0)) for _ in range(2)]
    gate.until_a_sync_waits()
    served.turn()
    assert not any(task.done() for task in tasks)
    gate.open_gate()
    served.settle()
    assert [only(task.result()).base_offset for task in tasks] == [0, 0]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (produce_request(b"a", topic="nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request(b"a", partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request(b"a", topic=METADATA_TOPIC), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (produce_request(b"a", acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
        (produce_request(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (
            produce_request(b"a", producer_id=7, sequence=5),
            ErrorCode.NONE,  # nothing is known of this producer: any start is fine
        ),
        (
            produce_request(b"a", timestamp_ms=NOW_MS + 7_200_000),
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(
    served: ServedNode, request_: ProduceRequest, code: ErrorCode
) -> None:
    served.create()
    assert code_of(served, request_) == code


def test_a_gap_in_a_producers_sequence_is_refused(served: ServedNode) -> None:
    served.create()
    served.ask(produce_request(b"a", producer_id=7, sequence=0))
    gap = produce_request(b"b", producer_id=7, sequence=5)
    assert code_of(served, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_stale_epoch_is_refused(served: ServedNode) -> None:
    served.create()
    served.ask(produce_request(b"a", producer_id=7, producer_epoch=1, sequence=0))
    stale = produce_request(b"b", producer_id=7, producer_epoch=0, sequence=1)
    assert code_of(served, stale) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_damaged_batch_is_refused_and_an_empty_one_too(served: ServedNode) -> None:
    served.create()
    damaged = produce_request(b"abc")
    records = bytearray(damaged.topic_data[0].partition_data[0].records or b"")
    records[-1] ^= 1
    damaged.topic_data[0].partition_data[0].records = records
    assert code_of(served, damaged) == ErrorCode.CORRUPT_MESSAGE
    damaged.topic_data[0].partition_data[0].records = None
    assert code_of(served, damaged) == ErrorCode.INVALID_RECORD


def test_with_log_append_time_the_answer_tells_the_time(served: ServedNode) -> None:
    served.create(message_timestamp_type="LogAppendTime")
    assert only(served.ask(produce_request(b"a"))).log_append_time == served.now_ms
    served.create("plain")
    assert only(served.ask(produce_request(b"a", topic="plain"))).log_append_time == -1


def test_a_full_disk_refuses_and_heals(served: ServedNode, disk: SimulatedDisk) -> None:
    served.create()
    served.produce(b"a")
    disk.fill_at(disk.steps)
    assert code_of(served, produce_request(b"b")) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert served.produce(b"b") == 1


def test_a_failed_sync_is_an_error_for_whoever_waits(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    served.create()
    served.produce(b"a")
    disk.fail_syncs(lambda path: path.parent.name == "orders-0")
    answer = only(served.ask(produce_request(b"b")))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    disk.heal()
    assert code_of(served, produce_request(b"c")) == ErrorCode.KAFKA_STORAGE_ERROR
    served.crash()


def test_with_acks_zero_there_is_no_answer(served: ServedNode) -> None:
    served.create()
    function = HANDLERS[ApiKey.PRODUCE].function
    call = Call(served.node, 12, CLIENT_ID, PEER)
    assert function(produce_request(b"a", acks=0), call) is None
    served.settle()
    assert served.node.topics.named("orders").partitions[0].log.synced_offset == 1


def test_a_refusal_with_acks_zero_is_not_swallowed(served: ServedNode) -> None:
    function = HANDLERS[ApiKey.PRODUCE].function
    call = Call(served.node, 12, CLIENT_ID, PEER)
    with pytest.raises(UnansweredProduceRefused, match=r"nothing-0: .* does not exist"):
        function(produce_request(b"a", topic="nothing", acks=0), call)


# --- which records of a batch are to blame (KIP-467) ---------------------------------------------


def records_request(*records: Record, codec: Codec = Codec.NONE) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=encode_batch(records, codec=codec))
    return ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
    )


def refused(
    served: ServedNode, request: ProduceRequest, version: int = 12
) -> tuple[int, list[int]]:
    """The error code, and which records are named."""
    answer = only(served.ask(request, version))
    for one in answer.record_errors:
        assert one.batch_index_error_message
    return answer.error_code, [one.batch_index for one in answer.record_errors]


def keyed(key: bytes | None) -> Record:
    return Record(key=key, value=b"v", timestamp_ms=NOW_MS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_without_a_key_are_named_one_by_one(served: ServedNode, codec: Codec) -> None:
    served.create(cleanup_policy="compact")
    request = records_request(keyed(b"a"), keyed(None), keyed(b"b"), keyed(None), codec=codec)
    assert refused(served, request) == (ErrorCode.INVALID_RECORD, [1, 3])
    answer = only(served.ask(request, 12))
    assert answer.error_message == (
        "invalid record batch: orders-0 is compacted and takes no record without a key"
    )


def test_records_out_of_time_are_named_one_by_one(served: ServedNode) -> None:
    served.create(message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    times = [NOW_MS, NOW_MS - 1_000, NOW_MS - 1_001, NOW_MS + 1_000, NOW_MS + 1_001]
    request = records_request(*[Record(value=b"v", timestamp_ms=time) for time in times])
    assert refused(served, request) == (ErrorCode.INVALID_TIMESTAMP, [2, 4])


def test_records_too_new_are_named_where_old_ones_may_come(served: ServedNode) -> None:
    served.create()
    times = [NOW_MS, NOW_MS + 7_200_000, 0]
    request = records_request(*[Record(value=b"v", timestamp_ms=time) for time in times])
    assert refused(served, request) == (ErrorCode.INVALID_TIMESTAMP, [1])


def test_older_versions_have_no_room_for_names(served: ServedNode) -> None:
    served.create(cleanup_policy="compact")
    assert refused(served, records_request(keyed(None)), 7) == (ErrorCode.INVALID_RECORD, [])
    assert refused(served, records_request(keyed(None)), 8) == (ErrorCode.INVALID_RECORD, [0])


@pytest.mark.parametrize("bad", [NAMED_MAX, NAMED_MAX + 1])
def test_an_answer_names_so_many_records_and_no_more(served: ServedNode, bad: int) -> None:
    served.create(cleanup_policy="compact")
    _, named = refused(served, records_request(*[keyed(None)] * bad))
    assert named == [*range(NAMED_MAX)]
