"""Every error that Millstream raises on purpose.

One root and three families, by what the one who catches it can do next: try again later, tell
the caller, or stop and tell the operator. Leaves live beside the code that raises them; each
carries its facts as attributes, and a message that names the thing and the way out.
Edges translate them once, in one table each: Kafka code, HTTP status, exit code.
"""


class MillstreamError(Exception):
    """The root of all errors raised on purpose."""


class Retryable(MillstreamError):
    """Nothing is wrong with the request: the same call may succeed later."""


class Rejected(MillstreamError):
    """The request can never succeed as it is: tell the caller why."""


class Corrupt(MillstreamError):
    """Stored bytes are not what was written: stop, and tell the operator where."""
