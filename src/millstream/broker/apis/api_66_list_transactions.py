# ListTransactions, versions 0-2.
#   Does:     every transactional id, filtered by state, producer id, how long its transaction is
#             open (1+) and a pattern for its name (2+).

from millstream.broker.groups.subscription_patterns import is_valid, matches
from millstream.broker.handlers import Call, handles
from millstream.broker.transactions.transaction import Transaction
from millstream.broker.transactions.transaction import TransactionState as State
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

STATE_NAMES = frozenset(state.value for state in State)


@handles(ApiKey.LIST_TRANSACTIONS, versions=range(3))
def list_transactions(request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    pattern = request.transactional_id_pattern or ".*"
    if not is_valid(pattern):
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = call.node.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATE_NAMES],
        transaction_states=[
            TransactionState(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.value,
            )
            for one in call.visible_transactions()
            if _is_wanted(one, request, now_ms) and matches(pattern, one.transactional_id)
        ],
    )


def _is_wanted(one: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    states, producer_ids = request.state_filters, request.producer_id_filters
    if states and one.state.value not in states:
        return False
    if producer_ids and one.producer_id not in producer_ids:
        return False
    if request.duration_filter < 0:
        return True
    is_open = one.state is State.ONGOING or one.state.is_prepared
    return is_open and now_ms - one.started_ms > request.duration_filter
