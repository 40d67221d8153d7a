"""SASL PLAIN (RFC 4616), checked against the same credentials as SCRAM.

The password crosses the wire as it is, so PLAIN is for connections with TLS only: the shell must
not offer it elsewhere beyond loopback. A check costs thousands of hashes (milliseconds): the shell
should run `take` in a thread.
"""

import hmac
from dataclasses import dataclass

from millstream.broker.security.credentials import (
    SHA_256,
    SHA_512,
    USER_LENGTH_MAX,
    Credentials,
    Mechanism,
    credential_from_password,
)
from millstream.broker.security.exchange import (
    AuthenticationFailed,
    MalformedSaslMessage,
    Step,
    check_length,
)

PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True)
class PlainStart:
    """Waits for the only message: [authorize as] NUL user NUL password."""

    credentials: Credentials
    mechanisms: tuple[Mechanism, ...] = (SHA_512, SHA_256)

    def claimed_user(self, message: bytes) -> str | None:
        return _parse(message)[0]

    def take(self, message: bytes) -> Step:
        user, password = _parse(message)
        id = self.credentials.find_any(user, self.mechanisms)
        credential, is_known = self.credentials.find(id)
        given = credential_from_password(
            id.mechanism, password, salt=credential.salt, iterations=credential.iterations
        )
        is_right = hmac.compare_digest(given.stored_key, credential.stored_key)
        if not (is_right and is_known):
            cause = "wrong password" if is_known else "unknown user"
            raise AuthenticationFailed(mechanism=PLAIN, cause=cause, user=user)
        return Step(reply=b"", user=user)


def _parse(message: bytes) -> tuple[str, str]:
    check_length(message, PLAIN)
    try:
        authorize_as, user, password = message.decode().split("\0")
    except ValueError:  # UnicodeDecodeError is one
        cause = "the message is not: authorization id, NUL, user, NUL, password"
        raise MalformedSaslMessage(mechanism=PLAIN, cause=cause) from None
    if not user or not password or len(user) > USER_LENGTH_MAX:
        cause = f"user and password must not be empty, nor a user over {USER_LENGTH_MAX} characters"
        raise MalformedSaslMessage(mechanism=PLAIN, cause=cause)
    if authorize_as not in ("", user):
        raise MalformedSaslMessage(mechanism=PLAIN, cause="acting as another user is not supported")
    return user, password
