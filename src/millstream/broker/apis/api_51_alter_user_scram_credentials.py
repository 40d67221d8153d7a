# AlterUserScramCredentials, version 0.
#   Does:     sets and removes passwords, which arrive salted (KIP-554); answers when that is on
#             disk, and it counts from then on. Logins that are there already stay.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def _refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    return _answer_all(request, code, None)


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=range(1), refuse=_refuse)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    try:
        results = await call.node.logins.alter(request)
    except MillstreamError as error:  # the disk's
        return _answer_all(request, error_code(error), error_message(error))
    for result in results:
        if not result.error_code:
            call.note_change(f"credentials changed: {result.user!a}")
    return AlterUserScramCredentialsResponse(results=results)


def _answer_all(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, message: str | None
) -> AlterUserScramCredentialsResponse:
    named = dict.fromkeys(deletion.name for deletion in request.deletions)
    named |= dict.fromkeys(upsertion.name for upsertion in request.upsertions)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
            for name in named
        ]
    )
