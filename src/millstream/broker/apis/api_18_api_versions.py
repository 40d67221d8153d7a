# ApiVersions, versions 0-4.
#   Does:     lists every API with a handler, and the versions it offers.
#   Does not: name features; there is none yet that a client must know of.

from millstream.broker.handlers import HANDLERS, Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)


@handles(ApiKey.API_VERSIONS, versions=range(5))
def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    return offered_versions()


def offered_versions(*, error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=handler.versions[0],
                max_version=handler.versions[-1],
            )
            for key, handler in sorted(HANDLERS.items())
        ],
    )
