# DescribeProducers, version 0.
#   Does:     the producers that a partition remembers, with the start of an open transaction.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from millstream.log.producer_state import NO_OFFSET, ProducerStates


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=range(1))
def describe_producers(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(topic.name, number, call) for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, number: int, call: Call) -> PartitionResponse:
    try:
        log = call.topics.named(topic).partition(number).log
    except MillstreamError as error:
        return PartitionResponse(
            partition_index=number,
            error_code=error_code(error),
            error_message=error_message(error),
        )
    return PartitionResponse(partition_index=number, active_producers=_producers(log.producers))


def _producers(producers: ProducerStates) -> list[ProducerState]:
    described = []
    for producer_id, producer in producers:
        open_since = producers.open_since(producer_id)
        described.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last.last_sequence,
                last_timestamp=producer.last.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if open_since is None else open_since,
            )
        )
    return described
