# UnregisterBroker, version 0.
#   Does:     says that other brokers are not registered.
#   Does not: unregister this one, which is the last.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@handles(ApiKey.UNREGISTER_BROKER, versions=range(1))
def unregister_broker(request: UnregisterBrokerRequest, call: Call) -> UnregisterBrokerResponse:
    if request.broker_id == call.node.config.node_id:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"broker {request.broker_id} is the only one: stop it instead",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"broker {request.broker_id} is not registered",
    )
