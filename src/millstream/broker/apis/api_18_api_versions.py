# ApiVersions, versions 0-4.
#   Does:     lists every API with a handler, and the versions it offers.
#             Names the features that clients decide by: transaction.version 2 gives each
#             transaction an epoch of its own (KIP-890), group.version 1 is KIP-848,
#             share.version 1 is KIP-932, streams.version 1 is KIP-1071. Refuses a client software
#             name or version that is not one (KIP-511), and says nothing else then, as Kafka does.

import re

from millstream.broker.handlers import HANDLERS, Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_SINCE_VERSION = 3
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# By name, the level that is in force.
FEATURES = {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}


@handles(ApiKey.API_VERSIONS, versions=range(5))
def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_SINCE_VERSION and not _names_software(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return offered_versions()


def _names_software(request: ApiVersionsRequest) -> bool:
    named = request.client_software_name, request.client_software_version
    return all(SOFTWARE_NAME.fullmatch(text) for text in named)


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
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )
