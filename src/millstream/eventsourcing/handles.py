"""One aggregate by its id, as an application holds it: commands as methods, its state, its history.

`Handle` waits, `AsyncHandle` is awaited, `AskingHandle` only says what would be sent. What they do
is in `aggregates.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from millstream.eventsourcing.acting import said
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.command_calls import call_of
from millstream.eventsourcing.command_sender import Pending
from millstream.eventsourcing.command_topic import SentCommand
from millstream.eventsourcing.history import Happening
from millstream.eventsourcing.stored_event import Receipt

if TYPE_CHECKING:
    from millstream.eventsourcing.aggregates import Aggregates

AggregateT = TypeVar("AggregateT", bound=Aggregate)


class Handle(Generic[AggregateT]):
    """One aggregate by its id. Every command of its class is a method here that gives a receipt.

    Beside its own arguments each takes: `id`, under which a retry is a no-op; `expect`, the version
    that the stream must have; `by`, `why`, `causation` and `correlation`, which are kept with its
    events; `wait=False`, with which it goes over the topic and gives a `Pending`.
    """

    __slots__ = ("_all", "id", "stream")

    def __init__(self, all: "Aggregates[AggregateT]", id: str, stream: str) -> None:
        self._all, self.id, self.stream = all, id, stream

    def __repr__(self) -> str:
        return f"<{self.stream} in {self._all.store.topic}>"

    def __getattr__(self, command: str) -> Callable[..., Any]:
        require_command(self._all, command)

        def run(*arguments: Any, wait: bool = True, **named: Any) -> Receipt | Pending:
            asked = self._all.call(command, *arguments, **named)
            if wait and not self._all.sends_all:
                return self._all.run(self.id, *asked)
            pending = self._all.send(self.id, *asked)
            return pending.result() if wait else pending

        return run

    @property
    def version(self) -> int:
        """As of now; 0 before its first event."""
        return self._all.store.version(self.stream)

    def state(self, *, version: int | None = None, at: datetime | None = None) -> AggregateT:
        """As it is now, or as it was at a version or a time."""
        return self._all.state(self.id, version=version, at=at)

    def history(self) -> list[Happening]:
        """Every event: what, when, by whom and why."""
        return self._all.history(self.id)

    def shun(self, event_id: str, *, why: str | None = None, by: str | None = None) -> Receipt:
        """From now on the event does not count, though it stays. Say `why`, and `by` whom."""
        meta = said({"by": by, "why": why})
        return self._all.shunning(self.id, event_id, meta=meta).result()


class AsyncAggregates(Generic[AggregateT]):
    def __init__(self, all: "Aggregates[AggregateT]") -> None:
        self._all = all

    def __getitem__(self, id: str) -> "AsyncHandle[AggregateT]":
        return AsyncHandle(self._all, id, self._all.stream(id))


class AsyncHandle(Generic[AggregateT]):
    """As `Handle`; what is asked of the store is awaited."""

    __slots__ = ("_all", "id", "stream")

    def __init__(self, all: "Aggregates[AggregateT]", id: str, stream: str) -> None:
        self._all, self.id, self.stream = all, id, stream

    def __repr__(self) -> str:
        return f"<{self.stream} in {self._all.store.topic}, for asyncio>"

    def __getattr__(self, command: str) -> Callable[..., Awaitable[Any]]:
        require_command(self._all, command)

        async def run(*arguments: Any, wait: bool = True, **named: Any) -> Receipt | Pending:
            call, terms = self._all.call(command, *arguments, **named)
            if wait and not self._all.sends_all:
                return await asyncio.wrap_future(self._all.submit(self.id, call, terms))
            pending = await asyncio.to_thread(self._all.send, self.id, call, terms)
            return await pending if wait else pending

        return run

    async def version(self) -> int:
        return await asyncio.to_thread(self._all.store.version, self.stream)

    async def state(self, *, version: int | None = None, at: datetime | None = None) -> AggregateT:
        return await asyncio.to_thread(self._all.state, self.id, version=version, at=at)

    async def history(self) -> list[Happening]:
        return await asyncio.to_thread(self._all.history, self.id)

    async def shun(
        self, event_id: str, *, why: str | None = None, by: str | None = None
    ) -> Receipt:
        meta = said({"by": by, "why": why})
        return await asyncio.wrap_future(self._all.shunning(self.id, event_id, meta=meta))


class Asking:
    """`bank.asking["bob"].deposit(5)` is a command as it is sent, without an id yet."""

    def __init__(self, all: "Aggregates[Any]") -> None:
        self._all = all

    def __getitem__(self, id: str) -> "AskingHandle":
        self._all.stream(id)
        return AskingHandle(self._all, id)


class AskingHandle:
    __slots__ = ("_all", "_id")

    def __init__(self, all: "Aggregates[Any]", id: str) -> None:
        self._all, self._id = all, id

    def __getattr__(self, command: str) -> Callable[..., SentCommand]:
        require_command(self._all, command)

        def ask(*arguments: Any, **named: Any) -> SentCommand:
            call, terms = self._all.call(command, *arguments, **named)
            sent = self._all.to_send(self._id, call, terms)
            return sent if terms.id else msgspec.structs.replace(sent, id="")

        return ask


def require_command(all: "Aggregates[Any]", command: str) -> None:
    """An AttributeError as well, so that `hasattr` and the like work as they should."""
    if command not in all.plan.commands:
        call_of(all.plan, command, (), {})
