# DescribeTransactions, version 0.
#   Does:     the state of each transactional id, and the partitions of its transaction.

from millstream.broker.access.permit import TransactionalIdDenied
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions=range(1))
def describe_transactions(
    request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(name, call) for name in request.transactional_ids]
    )


def _describe(transactional_id: str, call: Call) -> TransactionState:
    try:
        transaction = call.transactions(transactional_id).find(transactional_id)
    except TransactionalIdDenied as error:
        return TransactionState(transactional_id=transactional_id, error_code=error_code(error))
    if transaction is None:
        return TransactionState(
            transactional_id=transactional_id,
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        )
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            TopicData(topic=topic, partitions=numbers)
            for topic, numbers in transaction.places_by_topic.items()
            if call.permit.topics.shows(topic)
        ],
    )
