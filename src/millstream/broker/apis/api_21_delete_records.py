# DeleteRecords, versions 0-2.
#   Does:     hides records below an offset (-1: all), durably, and frees whole segments.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.topics import InternalTopic
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from millstream.log.partition_log import OffsetOutOfRange

UP_TO_THE_END = -1


@handles(ApiKey.DELETE_RECORDS, versions=range(3))
def delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(topic.name, wanted, call) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    topic_name: str, wanted: DeleteRecordsPartition, call: Call
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        topic = call.topics.named(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic=topic_name)
        partition = topic.partition(wanted.partition_index)
        log = partition.log
        offset = log.high_watermark if wanted.offset == UP_TO_THE_END else wanted.offset
        if offset < 0:
            raise OffsetOutOfRange(partition=log.name, offset=offset, available=log.available)
        call.topics.delete_records(partition, offset)
        answer.low_watermark = log.start_offset
    except MillstreamError as error:
        answer.error_code = error_code(error)
    return answer
