# ListOffsets, versions 1-10.
#   Does:     earliest (-2), latest (-1), the record with the largest timestamp (-3), the first
#             record at or after a timestamp; earliest local (-4) is earliest; for read_committed
#             nothing at or behind the last stable offset.
#   Does not: tiered storage (-5: none).

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_01_fetch import READ_COMMITTED, check_leader_epoch
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.log.partition_log import PartitionLog, TimedOffset

LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


@handles(ApiKey.LIST_OFFSETS, versions=range(1, 11))
def list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    is_committed_only = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _find(topic.name, wanted, is_committed_only, call)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    topic_name: str, wanted: ListOffsetsPartition, is_committed_only: bool, call: Call
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=-1, offset=-1
    )
    try:
        log = call.topics.named(topic_name).partition(wanted.partition_index).log
        answer.error_code = check_leader_epoch(wanted.current_leader_epoch, log.leader_epoch)
        found = None if answer.error_code else _lookup(log, wanted.timestamp, is_committed_only)
    except MillstreamError as error:
        answer.error_code = error_code(error)
        return answer
    if found is not None:
        answer.offset, answer.timestamp = found.offset, found.timestamp_ms
        answer.leader_epoch = log.epochs.at(found.offset)
    return answer


def _lookup(log: PartitionLog, timestamp: int, is_committed_only: bool) -> TimedOffset | None:
    end_offset = log.last_stable_offset if is_committed_only else log.high_watermark
    match timestamp:
        case -1:
            return TimedOffset(end_offset, -1)
        case -2 | -4:
            return TimedOffset(log.start_offset, -1)
        case -3:
            return log.newest()
        case -5:
            return None
    found = log.first_at_or_after(timestamp)
    return found if found is not None and found.offset < end_offset else None
