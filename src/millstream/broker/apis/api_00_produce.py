# Produce, versions 3-13.
#   Does:     appends one batch per partition, opaque and checked; idempotent and transactional
#             producers (12+ adds a partition to the transaction by writing to it, KIP-890); topic
#             ids (13); with acks=all answers once the batch is synced, with acks=1 once written;
#             names the records for which a batch is refused (8+, KIP-467).
#   Does not: look at the records inside a batch (docs/not_supported.md).

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

from millstream.base.errors import MillstreamError, Rejected
from millstream.broker.handlers import Call, Later, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.topics import InternalTopic, Topic
from millstream.broker.transaction_coordinator import WriteTurn
from millstream.broker.transactions.transaction import (
    Identity,
    NotInThisTransaction,
    Place,
    ProducerFenced,
    TransactionEnding,
)
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millstream.log.partition_log import RecordsWithoutKey, TimestampOutOfRange
from millstream.log.record_batch import InvalidBatch, read_header

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


# From this version on a write adds its partition to the transaction.
ADDS_IMPLICITLY = 12
KNOWS_ABORTABLE = 11
HAS_TOPIC_IDS = 13

Answer = ProduceResponse | Later | None


@handles(
    ApiKey.PRODUCE,
    versions=range(3, 14),
    refuse=lambda request, code: _refused(request, code),
)
def produce(
    request: ProduceRequest, call: Call
) -> Answer | Coroutine[Any, Any, ProduceResponse | Later]:
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    is_transactional = request.transactional_id is not None and request.acks == ACKS_ALL
    if is_transactional and call.version >= ADDS_IMPLICITLY:
        missing = _missing_places(request, call)
        if missing:
            name = request.transactional_id or ""
            turn = call.transactions(name).queue_write(name)
            return _produce_after_adding(request, call, missing, turn)
    return _append_all(request, call)


def _append_all(request: ProduceRequest, call: Call) -> Answer:
    waiting = _Waiting()
    response = ProduceResponse()
    for topic in request.topic_data:
        answers = [
            _append(topic, partition, request, waiting, call) for partition in topic.partition_data
        ]
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    if request.acks == ACKS_NONE:
        _check_all_taken(response)
        return None
    return response if waiting.count == 0 else waiting.answer_with(response)


# --- transactions ------------------------------------------------------------------------------


def _missing_places(request: ProduceRequest, call: Call) -> dict[Identity, set[Place]]:
    """The partitions that are not yet part of their producer's transaction.

    All of them, while others wait for that: the requests of a producer stay in their order.
    """
    missing: dict[Identity, set[Place]] = {}
    name = request.transactional_id or ""
    transactions = call.transactions(name)
    must_queue = transactions.has_queued_writes(name)
    for who, place in _places(request, call):
        try:
            transactions.check_write(name, who, place)
            if must_queue:
                missing.setdefault(who, set()).add(place)
        except (NotInThisTransaction, TransactionEnding):
            missing.setdefault(who, set()).add(place)
        except MillstreamError:
            pass  # the write itself is refused with it
    return missing


def _places(request: ProduceRequest, call: Call) -> Iterator[tuple[Identity, Place]]:
    """Who writes where in a transaction, as far as the request can be understood."""
    for data in request.topic_data:
        for partition in data.partition_data:
            try:
                topic = _topic(data, call)
                topic.partition(partition.index)
                header = read_header(partition.records or b"")
            except MillstreamError:
                continue
            if header.is_transactional and not topic.is_internal:
                who = Identity(header.producer_id, header.producer_epoch)
                yield who, Place(topic.name, partition.index)


async def _produce_after_adding(
    request: ProduceRequest, call: Call, missing: dict[Identity, set[Place]], turn: WriteTurn
) -> ProduceResponse | Later:
    name = request.transactional_id or ""
    with turn:
        for who, places in missing.items():
            try:
                await call.transactions(name).add(
                    name, who, frozenset(places), has_epoch_per_transaction=True
                )
            except MillstreamError as error:
                return _refuse_all(request, _transaction_code(error, call), error_message(error))
        answer = _append_all(request, call)
    assert answer is not None  # acks=all
    return answer


def _check_transaction(
    request: ProduceRequest, data: PartitionProduceData, place: Place, call: Call
) -> None:
    header = read_header(data.records or b"")
    if header.is_transactional:
        who = Identity(header.producer_id, header.producer_epoch)
        name = request.transactional_id or ""
        call.transactions(name).check_write(name, who, place)


def _transaction_code(error: MillstreamError, call: Call) -> ErrorCode:
    """As producers expect it of a write, which differs from what a coordinator says."""
    match error:
        case ProducerFenced():
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case NotInThisTransaction() if call.version >= KNOWS_ABORTABLE:
            return ErrorCode.TRANSACTION_ABORTABLE
        case TransactionEnding() if call.version < ADDS_IMPLICITLY:
            return ErrorCode.NOT_ENOUGH_REPLICAS  # what makes an older producer try again
    return error_code(error)


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

    def one_synced(
        self, answer: PartitionProduceResponse, call: Call, error: MillstreamError | None
    ) -> None:
        if error is not None:
            _refuse(answer, error, call)
        self.count -= 1
        if self.count == 0:
            self._later.resolve(self._response)


def _append(
    topic_data: TopicProduceData,
    data: PartitionProduceData,
    request: ProduceRequest,
    waiting: _Waiting,
    call: Call,
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index)
    node = call.node
    in_transaction = request.transactional_id is not None
    try:
        topic = _topic(topic_data, call)
        if topic.is_internal:
            raise InternalTopic(topic=topic.name)
        partition = topic.partition(data.index)
        if not data.records:
            raise InvalidBatch("no records")
        if in_transaction:
            _check_transaction(request, data, Place(topic.name, data.index), call)
        appended = partition.append(
            memoryview(data.records), now_ms=node.now_ms(), in_transaction=in_transaction
        )
    except MillstreamError as error:
        _refuse(answer, error, call)
        return answer
    answer.base_offset = appended.base_offset
    answer.log_append_time = appended.append_time_ms
    answer.log_start_offset = partition.log.start_offset
    if request.acks == ACKS_ALL and not partition.is_durable(appended.end_offset):
        waiting.count += 1
        partition.when_synced(appended.end_offset, partial(waiting.one_synced, answer, call))
    node.commit.mark(partition, appended.size_bytes)
    return answer


def _topic(data: TopicProduceData, call: Call) -> Topic:
    topics = call.topics
    if call.version >= HAS_TOPIC_IDS:
        return topics.with_id(data.topic_id)
    return topics.named(data.name)


def _refuse(answer: PartitionProduceResponse, error: MillstreamError, call: Call) -> None:
    answer.error_code = _transaction_code(error, call)
    answer.error_message = error_message(error)
    answer.base_offset = -1
    if isinstance(error, RecordsWithoutKey | TimestampOutOfRange) and call.version >= 8:  # KIP-467
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=reason)
            for place, reason in error.faults
        ]


def _refused(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    response = _refuse_all(request, code)
    if request.acks == ACKS_NONE:
        _check_all_taken(response)
    return response


def _refuse_all(
    request: ProduceRequest, code: ErrorCode, message: str | None = None
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, error_message=message, base_offset=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
