# EndTxn, versions 0-5.
#   Does:     commits or aborts; answers when the markers are durable in every partition. From
#             version 5 on each transaction has an epoch of its own: the answer names the next.

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_22_init_producer_id import transaction_error_code
from millstream.broker.handlers import Call, handles
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

HAS_EPOCH_PER_TRANSACTION = 5


@handles(ApiKey.END_TXN, versions=range(6))
async def end_txn(request: EndTxnRequest, call: Call) -> EndTxnResponse:
    try:
        who = await call.transactions(request.transactional_id).end(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            has_epoch_per_transaction=call.version >= HAS_EPOCH_PER_TRANSACTION,
        )
    except MillstreamError as error:
        code = transaction_error_code(error, knows_fenced=call.version >= 2)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=who.producer_id, producer_epoch=who.epoch)
