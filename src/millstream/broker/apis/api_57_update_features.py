# UpdateFeatures, versions 0-2.
#   Does:     agrees to the levels that are in force.
#   Does not: change them: features are on at their newest level (ApiVersions has them).

from millstream.broker.apis.api_18_api_versions import FEATURES
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# From here on one bad update refuses them all, by the error at the top of the answer (KIP-1022).
ALL_OR_NOTHING = 2


@handles(ApiKey.UPDATE_FEATURES, versions=range(3))
def update_features(request: UpdateFeaturesRequest, call: Call) -> UpdateFeaturesResponse:
    refusals = {update.feature: _refusal(update) for update in request.feature_updates}
    if call.version < ALL_OR_NOTHING:
        return UpdateFeaturesResponse(
            results=[_result(feature, reason) for feature, reason in refusals.items()]
        )
    for reason in refusals.values():
        if reason is not None:
            message = f"nothing was updated, as one feature cannot be: {reason}"
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message
            )
    return UpdateFeaturesResponse()


def _refusal(update: FeatureUpdateKey) -> str | None:
    name, level = update.feature, FEATURES.get(update.feature)
    if level is None:
        return f"there is no feature {name[:100]!r} here"
    if update.max_version_level == level:
        return None
    return f"{name} is at level {level}, which cannot be changed"


def _result(feature: str, reason: str | None) -> UpdatableFeatureResult:
    code = ErrorCode.NONE if reason is None else ErrorCode.INVALID_UPDATE_VERSION
    return UpdatableFeatureResult(feature=feature, error_code=code, error_message=reason)
