# InitProducerId, versions 0-5.
#   Does:     gives an idempotent producer an id that nobody had before, with epoch 0; a known
#             transactional id keeps its id with the next epoch, and what it left open is aborted;
#             a producer that goes on after an error says who it is (3+, KIP-360).
#   Does not: two-phase commit with an outside coordinator (6, KIP-939).

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code
from millstream.broker.transactions.transaction import Identity, ProducerFenced
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(6))
async def init_producer_id(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        who = await _identity(request, call)
    except MillstreamError as error:
        return _refused(transaction_error_code(error, knows_fenced=call.version >= 4))
    return InitProducerIdResponse(producer_id=who.producer_id, producer_epoch=who.epoch)


async def _identity(request: InitProducerIdRequest, call: Call) -> Identity:
    if request.transactional_id is None:
        return Identity(await call.node.producer_ids.take(), 0)
    claimed = Identity(request.producer_id, request.producer_epoch)
    return await call.transactions(request.transactional_id).init(
        request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        claimed=claimed if request.producer_id >= 0 else None,
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def transaction_error_code(error: MillstreamError, *, knows_fenced: bool) -> ErrorCode:
    """What a coordinator answers; older versions had one code for every kind of old epoch."""
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return coordinator_error_code(error)
