# CreateAcls, versions 1-3.
#   Does:     adds rules, each for itself (security/acl_apis.py); they count and are durable when
#             answered.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.security.acl_apis import create_acls as create
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(
    ApiKey.CREATE_ACLS,
    versions=range(1, 4),
    refuse=lambda request, code: _refuse_all(request, code),
)
async def create_acls(request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    access = call.node.access
    async with access.turn:
        created = create(request, access.acls)
        try:
            await access.add(created.new, by=call.permit.caller)
        except MillstreamError as error:
            return _refuse_all(request, error_code(error), error_message(error))
    return created.response


def _refuse_all(
    request: CreateAclsRequest, code: ErrorCode, reason: str | None = None
) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=reason) for _ in request.creations
        ]
    )
