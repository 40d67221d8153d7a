# AddPartitionsToTxn, versions 0-3.
#   Does:     lets partitions take part in a producer's transaction, all of them or none.
#   Does not: the form in which brokers ask one another (4+).

from collections.abc import Callable

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_22_init_producer_id import transaction_error_code
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.topics import InternalTopic
from millstream.broker.transactions.transaction import Identity, Place
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)


@handles(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=range(4),
    refuse=lambda request, code: _answer(request, lambda place: code),
)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    places = [
        Place(topic.name, number)
        for topic in request.v3_and_below_topics
        for number in topic.partitions
    ]
    unknown = {place: code for place in places if (code := _check(place, call))}
    if unknown:
        return _answer(request, lambda place: unknown.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED))
    code = ErrorCode.NONE
    try:
        name = request.v3_and_below_transactional_id
        await call.transactions(name).add(
            name,
            Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            frozenset(places),
        )
    except MillstreamError as error:
        code = transaction_error_code(error, knows_fenced=call.version >= 2)
    return _answer(request, lambda place: code)


def _check(place: Place, call: Call) -> ErrorCode:
    try:
        topic = call.topics.named(place.topic)
        topic.partition(place.partition)
        if topic.is_internal:
            raise InternalTopic(topic=place.topic)
    except MillstreamError as error:
        return error_code(error)
    return ErrorCode.NONE


def _answer(
    request: AddPartitionsToTxnRequest, code_of: Callable[[Place], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number,
                        partition_error_code=code_of(Place(topic.name, number)),
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
