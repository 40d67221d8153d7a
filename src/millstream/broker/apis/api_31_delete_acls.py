# DeleteAcls, versions 1-3.
#   Does:     removes the rules that filters find, and names them (security/acl_apis.py); they are
#             gone for good when answered. Works on a full disk.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.security.acl_apis import delete_acls as delete
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(
    ApiKey.DELETE_ACLS,
    versions=range(1, 4),
    refuse=lambda request, code: _refuse_all(request, code),
)
async def delete_acls(request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    access = call.node.access
    async with access.turn:
        deleted = delete(request, access.acls)
        try:
            await access.remove(deleted.gone, by=call.permit.caller)
        except MillstreamError as error:
            return _refuse_all(request, error_code(error), error_message(error))
    return deleted.response


def _refuse_all(
    request: DeleteAclsRequest, code: ErrorCode, reason: str | None = None
) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=reason) for _ in request.filters
        ]
    )
