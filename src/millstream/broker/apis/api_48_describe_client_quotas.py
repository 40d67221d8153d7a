# DescribeClientQuotas, versions 0-1.
#   Does:     the quotas of users and client ids that a filter names (KIP-546).

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=range(2))
def describe_client_quotas(
    request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    return call.node.quotas.describe(request)
