# Produce, versions 3-12.
#   Does:     appends one batch per partition, opaque and checked; idempotent producers; with
#             acks=all answers once the batch is synced, with acks=1 once it is written.
#   Does not: transactions, topic ids (version 13); look at the records inside a batch
#             (docs/not_supported.md).

from functools import partial

from millstream.base.errors import MillstreamError, Rejected
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.topics import InternalTopic
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.log.record_batch import InvalidBatch

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


@handles(ApiKey.PRODUCE, versions=range(3, 13))
def produce(request: ProduceRequest, call: Call) -> ProduceResponse | Later | None:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    waiting = _Waiting()
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = [
            _append(topic.name, partition, request.acks, waiting, call)
            for partition in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(name=topic.name, partition_responses=answers)
        )
    if request.acks == ACKS_NONE:
        _check_all_taken(response)
        return None
    return response if waiting.count == 0 else waiting.answer_with(response)


class UnansweredProduceRefused(Rejected):
    """With acks=0 there is no answer that could say so: the connection ends, as in Kafka."""

    def __init__(self, *, topic: str, partition: int, reason: str | None) -> None:
        super().__init__(f"{topic}-{partition}: records sent with acks=0 are refused: {reason}")
        self.topic, self.partition, self.reason = topic, partition, reason


def _check_all_taken(response: ProduceResponse) -> None:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                raise UnansweredProduceRefused(
                    topic=topic.name, partition=answer.index, reason=answer.error_message
                )


class _Waiting:
    """How many partitions of a response are not durable yet. The last one to be sends it."""

    __slots__ = ("_later", "_response", "count")

    def __init__(self) -> None:
        self.count = 0

    def answer_with(self, response: ProduceResponse) -> Later:
        self._response = response
        self._later = Later()
        return self._later

    def one_synced(self, answer: PartitionProduceResponse, error: MillstreamError | None) -> None:
        if error is not None:
            _refuse(answer, error)
        self.count -= 1
        if self.count == 0:
            self._later.resolve(self._response)


def _append(
    topic_name: str, data: PartitionProduceData, acks: int, waiting: _Waiting, call: Call
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index)
    node = call.node
    try:
        topic = node.topics.named(topic_name)
        if topic.is_internal:
            raise InternalTopic(topic=topic_name)
        partition = topic.partition(data.index)
        if not data.records:
            raise InvalidBatch("no records")
        appended = partition.append(memoryview(data.records), now_ms=node.now_ms())
    except MillstreamError as error:
        _refuse(answer, error)
        return answer
    answer.base_offset = appended.base_offset
    answer.log_append_time = appended.append_time_ms
    answer.log_start_offset = partition.log.start_offset
    if acks == ACKS_ALL and not partition.is_durable(appended.end_offset):
        waiting.count += 1
        partition.when_synced(appended.end_offset, partial(waiting.one_synced, answer))
    node.commit.mark(partition, appended.size_bytes)
    return answer


def _refuse(answer: PartitionProduceResponse, error: MillstreamError) -> None:
    answer.error_code = error_code(error)
    answer.error_message = error_message(error)
    answer.base_offset = -1


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
