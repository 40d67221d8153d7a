# DescribeUserScramCredentials, version 0.
#   Does:     which mechanisms users have a password for, and its iterations (KIP-554).

from millstream.broker.handlers import Call, handles
from millstream.broker.security.credentials import describe_credentials
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=range(1))
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    names = None if request.users is None else [each.name for each in request.users]
    results = describe_credentials(names, call.node.logins.credentials)
    return DescribeUserScramCredentialsResponse(results=results)
