# SaslAuthenticate, versions 0-2.
#   Does:     one message of the mechanism, and the one back; with the last the client is logged
#             in, for as long as `sasl_session_ms` says. After failures it waits for its turn.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


@handles(ApiKey.SASL_AUTHENTICATE, versions=range(3), ends_with_connection=True)
async def sasl_authenticate(
    request: SaslAuthenticateRequest, call: Call
) -> SaslAuthenticateResponse:
    if call.login is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return await call.login.authenticate(bytes(request.auth_bytes))
