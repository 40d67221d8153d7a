"""What a SASL mechanism is to a connection: messages in, messages out, and at the end a user.

Each step gives the next one, so that no step can be taken twice or out of order.
"""

from dataclasses import dataclass
from typing import Protocol

from millstream.base.errors import Rejected

# The longest that any mechanism here has a reason for; a name or password is far shorter.
SASL_MESSAGE_BYTES_MAX = 16 * 1_024


class AuthenticationFailed(Rejected):
    """The message is for the client and tells nothing; `cause` is for the operator's eyes."""

    def __init__(self, *, mechanism: str, cause: str, user: str | None = None) -> None:
        super().__init__(f"{mechanism}: user name or password are not right")
        self.mechanism, self.cause, self.user = mechanism, cause, user


class MalformedSaslMessage(AuthenticationFailed):
    """Not what the mechanism prescribes. Says nothing about users, so the client may know why."""

    def __init__(self, *, mechanism: str, cause: str) -> None:
        super().__init__(mechanism=mechanism, cause=cause)
        self.args = (f"{mechanism}: {cause}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The answer to a message, and then either the next exchange or the user."""

    reply: bytes
    then: "Exchange | None" = None
    user: str | None = None


class Exchange(Protocol):
    def claimed_user(self, message: bytes) -> str | None:
        """Whose password `take` would check with this message; None if it checks none yet."""

    def take(self, message: bytes) -> Step:
        """The next step, or AuthenticationFailed."""


def check_length(message: bytes, mechanism: str) -> None:
    if len(message) > SASL_MESSAGE_BYTES_MAX:
        cause = f"a message of {len(message)} bytes, {SASL_MESSAGE_BYTES_MAX} are allowed"
        raise MalformedSaslMessage(mechanism=mechanism, cause=cause)
