# DescribeAcls, versions 1-3.
#   Does:     the rules that a filter finds (security/acl_apis.py).

from millstream.broker.handlers import Call, handles
from millstream.broker.security.acl_apis import describe_acls as describe
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(ApiKey.DESCRIBE_ACLS, versions=range(1, 4))
def describe_acls(request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    return describe(request, call.node.access.acls)
