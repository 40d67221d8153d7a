"""How a request meets its handler: the table of APIs, and what a handler is given.

Each file in `apis/` registers one API with the versions it offers. A handler returns its response,
or None for none at all, or a `Later` or coroutine that brings it; responses leave a connection in
the order of its requests whatever comes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.broker.wire import REQUESTS, ApiKey, Message

if TYPE_CHECKING:
    from millstream.broker.node import Node


@dataclass(frozen=True, slots=True)
class Peer:
    """The two ends of a connection."""

    host: str
    port: int
    # The address that the client reached us at: what it can reach is what we advertise.
    local_host: str
    local_port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class Call:
    """Who asks, and in which version."""

    node: Node
    version: int
    client_id: str | None
    peer: Peer


class Later:
    """A response that comes later, without a task: `resolve` calls the waiting connection."""

    __slots__ = ("_callback", "_response")

    def __init__(self) -> None:
        self._callback: Callable[[Message], None] | None = None
        self._response: Message | None = None

    def resolve(self, response: Message) -> None:
        if self._callback is None:
            self._response = response
        else:
            self._callback(response)

    async def wait(self) -> Any:
        """The response, for a coroutine that goes on with it."""
        arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.then(arrived.set_result)
        return await arrived

    def then(self, callback: Callable[[Message], None]) -> None:
        if self._response is None:
            self._callback = callback
        else:
            callback(self._response)


Answer = Message | Later | Coroutine[Any, Any, Message] | None
HandlerFunction = Callable[[Any, Call], Answer]
F = TypeVar("F", bound=Callable[..., Answer])


@dataclass(frozen=True, slots=True)
class Handler:
    api_key: ApiKey
    versions: range
    function: HandlerFunction
    request_class: type[Message]
    # Whether its coroutine ends with the connection. One that changes something must not: what
    # it has begun would be on disk, and not in memory.
    ends_with_connection: bool


HANDLERS: dict[int, Handler] = {}


def handles(
    api_key: ApiKey, *, versions: range, ends_with_connection: bool = False
) -> Callable[[F], F]:
    """Register the function that answers an API, and the versions that it offers."""

    def register(function: F) -> F:
        HANDLERS[int(api_key)] = Handler(
            api_key, versions, function, REQUESTS[api_key], ends_with_connection
        )
        return function

    return register
