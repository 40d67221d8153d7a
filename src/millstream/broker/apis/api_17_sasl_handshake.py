# SaslHandshake, versions 0-1.
#   Does:     begins a login by one of the mechanisms that are offered, or renews one (KIP-368).
#             After version 0 the messages of the mechanism come bare (`connection.py`).

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(ApiKey.SASL_HANDSHAKE, versions=range(2))
def sasl_handshake(request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    if call.login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return call.login.handshake(request.mechanism, version=call.version)
