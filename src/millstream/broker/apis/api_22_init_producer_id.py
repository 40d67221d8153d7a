# InitProducerId, versions 0-5.
#   Does:     gives an idempotent producer an id that nobody had before, with epoch 0.
#   Does not: transactional ids (docs/not_supported.md).

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


@handles(ApiKey.INIT_PRODUCER_ID, versions=range(6))
async def init_producer_id(request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            producer_id=-1,
            producer_epoch=-1,
        )
    try:
        return InitProducerIdResponse(
            producer_id=await call.node.producer_ids.take(), producer_epoch=0
        )
    except MillstreamError as error:
        return InitProducerIdResponse(
            error_code=coordinator_error_code(error), producer_id=-1, producer_epoch=-1
        )
