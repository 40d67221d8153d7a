# OffsetForLeaderEpoch, versions 2-4.
#   Does:     where an epoch ended, so that a client notices records that a crash took back.

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_01_fetch import check_leader_epoch
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=range(2, 5))
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(topic.topic, wanted, call) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(topic_name: str, wanted: OffsetForLeaderPartition, call: Call) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    try:
        log = call.topics.named(topic_name).partition(wanted.partition).log
    except MillstreamError as error:
        answer.error_code = error_code(error)
        return answer
    answer.error_code = check_leader_epoch(wanted.current_leader_epoch, log.leader_epoch)
    is_known = wanted.leader_epoch <= log.leader_epoch  # nobody can say where a future one ended
    if is_known and not answer.error_code:
        answer.leader_epoch, answer.end_offset = log.epochs.end_of(
            wanted.leader_epoch, log_end_offset=log.high_watermark
        )
    return answer
