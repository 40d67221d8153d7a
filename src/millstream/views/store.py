"""What every store of a view offers: to its job, to readers, and to who looks after views.

A view has generations: a rebuild grows a new one beside that which readers see, and when it has
caught up it is served in its place. The former one stays for a rollback. docs/formats/ says how
each store keeps them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from millstream.base.errors import Rejected
from millstream.base.ports import Positions, ViewWriter
from millstream.base.schema import Schema

Row = dict[str, Any]


class ViewNotFound(Rejected):
    def __init__(self, *, view: str, place: object) -> None:
        super().__init__(f"view {view} is not there yet ({place}): run its job once")
        self.view, self.place = view, place


class NoSuchGeneration(Rejected):
    def __init__(self, *, view: str, generation: int, there: Sequence[int]) -> None:
        known = ", ".join(map(str, there)) or "none"
        super().__init__(f"view {view} has no generation {generation} (there are: {known})")
        self.view, self.generation, self.there = view, generation, tuple(there)


class GenerationServed(Rejected):
    def __init__(self, *, view: str, generation: int) -> None:
        super().__init__(
            f"view {view}: generation {generation} is the one that readers see. Serve another one "
            "first, or drop the whole view"
        )
        self.view, self.generation = view, generation


class BadQuestion(Rejected):
    """A key, a condition or an order that the view cannot answer."""


class NotInThisStore(Rejected):
    """A question that the view's store has no answer to."""

    def __init__(self, *, view: str, store: str, question: str, instead: str) -> None:
        super().__init__(f"view {view} is kept in {store}, which has no {question}: {instead}")
        self.view, self.store, self.question = view, store, question


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One of a view; `positions` are where its job has read to with its last batch."""

    number: int
    is_served: bool
    batch: int | None = None
    positions: Positions = field(default_factory=dict)


class ViewReads(Protocol):
    """The served generation, as of one batch for each call. Thread-safe."""

    @property
    def schema(self) -> Schema: ...

    @property
    def key(self) -> tuple[str, ...]: ...

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]: ...

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        """Rows by key from `first` to `last`, both included; a tuple may name a key's first parts
        only."""

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]: ...

    def count(self) -> int: ...

    def position(self) -> Positions: ...

    def close(self) -> None: ...


class ViewStore(Protocol):
    """Where one view is kept. `place` says so in messages."""

    view: str
    place: str

    def writer(self, generation: int) -> ViewWriter: ...

    def reader(self, generation: int | None = None) -> ViewReads:
        """The one that is served, whichever that is then; or this one, served or not."""

    def generations(self) -> list[Generation]:
        """Those that are there, the oldest first; none if the view is not there."""

    def serve(self, generation: int) -> None:
        """Show readers this one, at once; it must be there."""

    def drop(self, generation: int | None = None) -> None:
        """Remove one that is not served, or the whole view."""


def require_generation(view: str, generation: int, there: Sequence[int]) -> None:
    if generation not in there:
        raise NoSuchGeneration(view=view, generation=generation, there=there)


def require_droppable(
    view: str, generation: int, there: Sequence[int], *, served: int | None
) -> None:
    require_generation(view, generation, there)
    if generation == served:
        raise GenerationServed(view=view, generation=generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What an application gives to the store of a view.

    `history_ms` is how far back the view is to be read; None: not declared.
    """

    app: str
    data: Path
    client: Mapping[str, Any] = field(default_factory=dict)  # librdkafka's, with bootstrap.servers
    history_ms: int | None = None


class StoreChoice(Protocol):
    """What `@app.view(store=...)` takes: stores.Postgres("postgresql://..."), and the like."""

    def open(self, view: str, key: tuple[str, ...], home: Home) -> ViewStore: ...
