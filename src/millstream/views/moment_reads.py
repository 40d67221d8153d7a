"""The half of a `ViewReads` that is the same in every store which can hold a view still.

A store says what a moment of its view is, from which everything that is asked of it belongs
together; each question that comes alone is asked of a moment of its own.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millstream.base.closing import Closing
from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.views.store import Row


class Moment(Protocol):
    """A view as of one batch."""

    @property
    def schema(self) -> Schema: ...

    @property
    def key(self) -> tuple[str, ...]: ...

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]: ...

    def range(
        self, first: Any = None, last: Any = None, *, limit: int | None = None
    ) -> list[Row]: ...

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]: ...

    def count(self) -> int: ...

    def position(self) -> Positions: ...


class MomentReads(Closing):
    @abstractmethod
    def moment(self) -> AbstractContextManager[Moment]:
        """What is read inside belongs together."""

    @abstractmethod
    def close(self) -> None: ...

    @property
    def schema(self) -> Schema:
        with self.moment() as now:
            return now.schema

    @property
    def key(self) -> tuple[str, ...]:
        with self.moment() as now:
            return now.key

    def get(self, *key: Any) -> Row | None:
        """The row of this key, or None."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        """The rows of these keys, all as of one moment; None where there is none.

        A key of several columns is a tuple or a mapping.
        """
        with self.moment() as now:
            return now.get_many(keys)

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        """Rows by key from `first` to `last`, both included; a tuple may name the key's first
        parts only."""
        with self.moment() as now:
            return now.range(first, last, limit=limit)

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """Rows that meet all conditions: {"url": "/", "count >=": 5, "window.start <": noon}.

        `order_by` names columns, "-count" the greatest first; without it rows come by key.
        """
        with self.moment() as now:
            return now.scan(where=where, order_by=order_by, limit=limit)

    def count(self) -> int:
        with self.moment() as now:
            return now.count()

    def position(self) -> Positions:
        """Where the job has read to, in this view: the next offset by topic and partition."""
        with self.moment() as now:
            return now.position()
