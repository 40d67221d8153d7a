# AlterClientQuotas, versions 0-1.
#   Does:     sets and removes quotas of users and client ids, each entity for itself (KIP-546);
#             answers when they are on disk, and they count from then on.
#   Does not: quotas by ip, connection_creation_rate, controller_mutation_rate: refused.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)


def _refuse(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    return _answer_all(request, code, None)


@handles(ApiKey.ALTER_CLIENT_QUOTAS, versions=range(2), refuse=_refuse)
async def alter_client_quotas(
    request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse:
    try:
        response = await call.node.quotas.alter(request)
    except MillstreamError as error:  # the disk's
        return _answer_all(request, error_code(error), error_message(error))
    for entry in response.entries:
        if not entry.error_code and not request.validate_only:
            entity = {part.entity_type: part.entity_name for part in entry.entity}
            call.note_change(f"quotas changed: {entity!a}")
    return response


def _answer_all(
    request: AlterClientQuotasRequest, code: ErrorCode, message: str | None
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(error_code=code, error_message=message, entity=entry.entity)
            for entry in request.entries
        ]
    )
