"""How a request meets its handler: the table of APIs, and what a handler is given.

Each file in `apis/` registers one API with the versions it offers. A handler returns its response,
or None for none at all, or a `Later` or coroutine that brings it. With a `Later` it has changed all
that it will change; a coroutine may still change something, and may return a `Later` when it has.
Responses leave a connection in the order of its requests whatever comes first.

What an API needs (`security/requirements.py`) is checked here: whole requests before their handler
runs, and every topic, group and transactional id when a handler asks the Call for it. There is no
other way to them from `apis/` (tests/house/test_handlers_ask_for_permits.py), and an API without a
line in the table cannot be registered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.base.errors import Rejected
from millstream.broker.access.guarded_topics import GuardedTopics
from millstream.broker.security.acls import ANONYMOUS
from millstream.broker.security.named_in_requests import check_understood
from millstream.broker.security.requirements import requirement_of
from millstream.broker.wire import REQUESTS, RESPONSES, ApiKey, ErrorCode, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.broker.access.connection_login import ConnectionLogin
    from millstream.broker.access.permit import Permit
    from millstream.broker.group_coordinator import GroupCoordinator, GroupOfAnyKind
    from millstream.broker.node import Node
    from millstream.broker.transaction_coordinator import TransactionCoordinator
    from millstream.broker.transactions.transaction import Transaction


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
    """Who asks, and in which version; and what the caller may touch, as the API's permit says."""

    node: Node
    version: int
    client_id: str | None
    peer: Peer
    principal: str = ANONYMOUS
    # The login of the connection, for the two APIs that are it.
    login: ConnectionLogin | None = None
    # Set before the handler runs; without it nothing is handed out.
    permit: Permit = field(init=False)

    @property
    def topics(self) -> GuardedTopics:
        permit = self.permit
        if permit.guarded_topics is None:
            permit.guarded_topics = GuardedTopics(self.node.topics, permit)
        return permit.guarded_topics

    def groups(self, group_id: str) -> GroupCoordinator:
        """The coordinator, for this group; raises GroupDenied."""
        self.permit.groups.check(group_id)
        return self.node.groups

    def visible_groups(self) -> Iterator[GroupOfAnyKind]:
        shows = self.permit.groups.shows
        return (group for group in self.node.groups.of_every_kind() if shows(group.group_id))

    def configured_groups(self) -> Iterator[str]:
        """The groups with configuration of their own, whether they have members or not."""
        return filter(self.permit.groups.shows, self.node.groups.configs)

    def transactions(self, transactional_id: str) -> TransactionCoordinator:
        """The coordinator, for this transactional id; raises TransactionalIdDenied."""
        self.permit.transactional_ids.check(transactional_id)
        return self.node.transactions

    def note_change(self, what: str) -> None:
        """A line in the audit; names in it must be harmless (`ascii`)."""
        self.node.access.note_change(self.permit.caller, what)

    def visible_transactions(self) -> Iterator[Transaction]:
        shows = self.permit.transactional_ids.shows
        return (one for one in self.node.transactions if shows(one.transactional_id))


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

    def then(self, callback: Callable[[Message], None]) -> None:
        if self._response is None:
            self._callback = callback
        else:
            callback(self._response)


Answer = Message | Later | Coroutine[Any, Any, Message | Later] | None
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

# The answer to a request that is refused as a whole.
Refuse = Callable[[Any, ErrorCode], Message]


class NoRefusal(Rejected):
    def __init__(self, *, api: str) -> None:
        super().__init__(f"{api} has no answer that says that the caller may not ask: give one")
        self.api = api


def handles(
    api_key: ApiKey,
    *,
    versions: range,
    ends_with_connection: bool = False,
    refuse: Refuse | None = None,
) -> Callable[[F], F]:
    """Register the function that answers an API, and the versions that it offers.

    `refuse` makes the answer to a caller who may not ask at all, where that is more than the
    error code at its top.
    """

    def register(function: F) -> F:
        answer = _guarded(function, api_key, refuse or _refuse_at_the_top(api_key))
        HANDLERS[int(api_key)] = Handler(
            api_key, versions, answer, REQUESTS[api_key], ends_with_connection
        )
        return function

    return register


def _guarded(function: HandlerFunction, api_key: ApiKey, refuse: Refuse) -> HandlerFunction:
    """The function, and the question before it whether the caller may ask."""
    key, requirement = int(api_key), requirement_of(api_key)
    check_understood(requirement)
    needs = requirement.of_request

    def answer(request: Any, call: Call) -> Answer:
        access = call.node.access
        call.permit = permit = access.permit(key, requirement, call.principal, call.peer.host)
        if needs and access.is_on:
            code = permit.refusal_of(request, needs, call.version)
            if code is not None:
                return refuse(request, code)
        return function(request, call)

    return answer


def _refuse_at_the_top(api_key: ApiKey) -> Refuse:
    requirement = requirement_of(api_key)
    fields = RESPONSES[api_key].__schema__.fields
    if requirement.of_request and not any(field.name == "error_code" for field in fields):
        raise NoRefusal(api=requirement.name)
    make: Callable[..., Message] = RESPONSES[api_key]
    return lambda _, code: make(error_code=code)
