# AddOffsetsToTxn, versions 0-4.
#   Does:     lets a group's offsets take part in a producer's transaction.

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_22_init_producer_id import transaction_error_code
from millstream.broker.handlers import Call, handles
from millstream.broker.transaction_coordinator import OFFSETS_PLACE
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


@handles(ApiKey.ADD_OFFSETS_TO_TXN, versions=range(5))
async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, call: Call
) -> AddOffsetsToTxnResponse:
    code = ErrorCode.NONE
    try:
        await call.transactions(request.transactional_id).add(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            frozenset({OFFSETS_PLACE}),
        )
    except MillstreamError as error:
        code = transaction_error_code(error, knows_fenced=call.version >= 2)
    return AddOffsetsToTxnResponse(error_code=code)
