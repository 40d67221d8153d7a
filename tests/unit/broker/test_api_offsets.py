"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where a log starts, ends and was."""

import pytest

from millstream.broker.topics import METADATA_TOPIC
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.batches import NOW_MS
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode, produce_request

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def list_offset(
    served: ServedNode,
    timestamp: int,
    *,
    topic: str = "orders",
    epoch: int = -1,
    partition: int = 0,
) -> ListOffsetsPartitionResponse:
    place = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    wanted = ListOffsetsTopic(name=topic, partitions=[place])
    answer = served.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]))
    (one,) = answer.topics[0].partitions
    assert isinstance(one, ListOffsetsPartitionResponse)
    return one


@pytest.fixture
def with_times(served: ServedNode) -> ServedNode:
    """Offsets 0 to 3, the third record is the newest; the first one is deleted."""
    topic = served.create()
    for delta_ms in (0, 10, 30, 20):
        served.ask(produce_request(b"x", timestamp_ms=NOW_MS + delta_ms))
    served.node.topics.delete_records(topic.partitions[0], 1)
    return served


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [
        (LATEST, 4, -1),
        (EARLIEST, 1, -1),
        (EARLIEST_LOCAL, 1, -1),
        (NEWEST, 2, NOW_MS + 30),
        (LATEST_TIERED, -1, -1),
        (0, 1, NOW_MS + 10),
        (NOW_MS + 10, 1, NOW_MS + 10),
        (NOW_MS + 11, 2, NOW_MS + 30),
        (NOW_MS + 30, 2, NOW_MS + 30),
        (NOW_MS + 31, -1, -1),
    ],
)
def test_an_offset_is_found_for_every_special_time_and_any_other(
    with_times: ServedNode, timestamp: int, offset: int, found_ms: int
) -> None:
    found = list_offset(with_times, timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_ms)
    assert found.leader_epoch == (0 if offset >= 0 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(LATEST, 0), (EARLIEST, 0), (NEWEST, -1), (0, -1)]
)
def test_an_empty_log_has_a_start_and_an_end_and_no_record(
    served: ServedNode, timestamp: int, offset: int
) -> None:
    served.create()
    assert list_offset(served, timestamp).offset == offset


def test_the_latest_offset_is_the_end_of_what_is_synced(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    served.create()
    gate.shut()
    task = served.ask_soon(produce_request(b"a"))
    gate.until_a_sync_waits()
    assert list_offset(served, LATEST).offset == 0
    gate.open_gate()
    served.settle()
    assert task.done()
    assert list_offset(served, LATEST).offset == 1


def test_offsets_of_what_is_not_there_are_refused(served: ServedNode) -> None:
    served.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(served, LATEST, topic="nothing").error_code == unknown
    assert list_offset(served, LATEST, partition=1).error_code == unknown
    refused = list_offset(served, LATEST, epoch=9)
    assert (refused.error_code, refused.offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)


# --- leader epochs ----------------------------------------------------------------------------


def epoch_end(
    served: ServedNode, epoch: int, *, topic: str = "orders", current: int = -1
) -> EpochEndOffset:
    place = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    wanted = OffsetForLeaderTopic(topic=topic, partitions=[place])
    answer = served.ask(OffsetForLeaderEpochRequest(topics=[wanted]))
    (one,) = answer.topics[0].partitions
    assert isinstance(one, EpochEndOffset)
    return one


def test_each_start_of_the_broker_is_an_epoch_that_ends_where_the_next_one_begins(
    serve: Serve,
) -> None:
    served = serve()
    served.create()
    served.produce(b"a", b"b")
    served.crash()
    again = serve()
    again.produce(b"c")
    ends = [epoch_end(again, epoch) for epoch in (0, 1)]
    assert [(end.leader_epoch, end.end_offset) for end in ends] == [(0, 2), (1, 3)]
    assert epoch_end(again, 0, current=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert epoch_end(again, 0, current=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = epoch_end(again, 0, topic="nothing")
    assert (unknown.error_code, unknown.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# --- delete records ---------------------------------------------------------------------------


def delete_records(
    served: ServedNode, offset: int, *, topic: str = "orders", partition: int = 0
) -> DeleteRecordsPartitionResult:
    place = DeleteRecordsPartition(partition_index=partition, offset=offset)
    wanted = DeleteRecordsTopic(name=topic, partitions=[place])
    answer = served.ask(DeleteRecordsRequest(topics=[wanted]))
    (one,) = answer.topics[0].partitions
    assert isinstance(one, DeleteRecordsPartitionResult)
    return one


@pytest.mark.parametrize(
    ("offset", "code", "low_watermark"),
    [
        (2, ErrorCode.NONE, 2),
        (3, ErrorCode.NONE, 3),
        (-1, ErrorCode.NONE, 3),
        (0, ErrorCode.NONE, 0),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ],
)
def test_records_are_deleted_up_to_an_offset_or_all_of_them(
    serve: Serve, offset: int, code: ErrorCode, low_watermark: int
) -> None:
    served = serve()
    (partition,) = served.create().partitions
    served.produce(b"a", b"b", b"c")
    answer = delete_records(served, offset)
    assert (answer.error_code, answer.low_watermark) == (code, low_watermark)
    assert partition.log.start_offset == max(low_watermark, 0)
    served.crash()
    again = serve().node.topics.named("orders").partitions[0].log
    assert (again.start_offset, again.end_offset) == (max(low_watermark, 0), 3)


def test_an_offset_below_the_start_changes_nothing(served: ServedNode) -> None:
    served.create()
    served.produce(b"a", b"b", b"c")
    delete_records(served, 2)
    assert delete_records(served, 1).low_watermark == 2


def test_records_of_what_is_not_there_or_not_yours_are_not_deleted(served: ServedNode) -> None:
    served.create()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_records(served, 0, topic="nothing").error_code == unknown
    assert delete_records(served, 0, partition=1).error_code == unknown
    internal = delete_records(served, 0, topic=METADATA_TOPIC)
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
