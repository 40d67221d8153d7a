"""Bodies of requests, within their bounds of size and time."""

from collections.abc import Mapping
from typing import Final

import anyio
from starlette.requests import ClientDisconnect, Request

from millstream.web.problems import Problem

# The rest of a body is not read: its connection is of no more use.
CLOSE: Final[Mapping[str, str]] = {"Connection": "close"}


async def body_within(request: Request, *, bytes_max: int, ms_max: int) -> bytes:
    """All of the body."""
    try:
        with anyio.fail_after(ms_max / 1000):
            return await _body(request, bytes_max)
    except TimeoutError:
        raise Problem("too-slow", f"the body took more than {ms_max} ms", CLOSE) from None
    except ClientDisconnect:
        raise Problem("bad-request", "the connection ended within the body") from None


async def _body(request: Request, bytes_max: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(body)


def _too_large(bytes_max: int) -> Problem:
    return Problem("too-large", f"the body has more than {bytes_max} bytes", CLOSE)
