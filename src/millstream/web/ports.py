"""What is served: an application as HTTP sees it. Protocols only; `commands/serve.py` gives it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.ports import Positions
from millstream.base.record import Record
from millstream.base.schema import Schema
from millstream.capture.recorded_change import RecordedChange
from millstream.queues.outbox import Receipt
from millstream.views.feeds import Slow
from millstream.views.store import Generation, Row

Declared = DeclaredTopic | DeclaredTable
EventT_co = TypeVar("EventT_co", covariant=True)


class FeedEvent(Protocol):
    """One of views/feeds.py: kind is row, current, upsert, delete or reset."""

    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> Row | None: ...
    @property
    def row(self) -> Row | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def token(self) -> str | None: ...


class Upcoming(Protocol[EventT_co]):
    """Holds no thread; a wait that is cancelled loses nothing."""

    async def __anext__(self) -> EventT_co: ...

    def __aiter__(self) -> AsyncIterator[EventT_co]: ...

    async def aclose(self) -> None: ...


class UpcomingChanges(Upcoming[RecordedChange], Protocol):
    """Of a captured table. `has_all`: what was there at first has come. `token`: where it is."""

    @property
    def has_all(self) -> bool: ...
    @property
    def token(self) -> str | None: ...


class ServedView(Protocol):
    """A view to read; its calls block."""

    @property
    def schema(self) -> Schema: ...
    @property
    def key(self) -> tuple[str, ...]: ...

    def get_many(
        self, keys: Sequence[Any], *, after: Sequence[Receipt], timeout: float
    ) -> list[Row | None]: ...

    def range(
        self, first: Any, last: Any, *, limit: int, after: Sequence[Receipt], timeout: float
    ) -> list[Row]: ...

    def scan(
        self,
        *,
        where: Mapping[str, Any],
        order_by: Sequence[str],
        limit: int,
        after: Sequence[Receipt],
        timeout: float,
    ) -> list[Row]: ...

    def position(self) -> Positions: ...

    def count(self) -> int: ...

    def token(self, *, where: Mapping[str, Any] | None = None) -> str | None:
        """To subscribe for what comes after now; None if the view is not there yet."""

    def subscribe_async(
        self, *, where: Mapping[str, Any], since: str | None, slow: Slow
    ) -> Upcoming[FeedEvent]: ...


class Application(Protocol):
    """Thread-safe."""

    name: str

    def topics(self) -> Mapping[str, Declared]:
        """Those that can be written, as they were declared."""

    def records(self, topic: str, rows: Sequence[Any]) -> list[Record]:
        """The rows as the topic's records; raises for one that does not fit."""

    def publish(self, topic: str, records: Sequence[Record]) -> list[Receipt]:
        """Durable when this returns."""

    def publish_once(
        self, key: str, request: str, topic: str, records: Sequence[Record]
    ) -> list[Receipt]:
        """The same, unless it was done under this key before: then where they are since.

        `request` is what the key stands for: another one under the same key is refused.
        """

    def views(self) -> Sequence[str]: ...

    def view(self, name: str) -> ServedView: ...

    def generations(self, view: str) -> Sequence[Generation]: ...

    def tables(self) -> Sequence[str]:
        """Those that are captured from a database."""

    def changes(self, table: str, *, since: str | None) -> UpcomingChanges:
        """All that is captured of it, or what came after a token."""

    def require_broker(self) -> None:
        """Raises if no broker answers."""
