"""Reads a view from Redis, from any process, also while its job writes.

Every call is one script, and so of one moment. `get_many` and `range` fetch only the rows that
they give; a `scan` fetches all of them, because Redis cannot look into their columns.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.conditions import require_limit
from millstream.views.keys import fitted_bound, key_fitter
from millstream.views.store import Row, ViewNotFound
from millstream.views.stores.arrow_reads import ArrowMoment, Loaded
from millstream.views.stores.redis.link import RedisLink
from millstream.views.stores.redis.scripts import GET, NOTES, RANGE
from millstream.views.stores.redis.values import RedisRows
from millstream.views.stores.stored_keys import AFTER, StoredKeys, sortable_bound
from millstream.views.table_layout import TableLayout
from millstream.views.view_book import GenerationState, state_from

LEAST, GREATEST, ALL = b"-", b"+", "-1"
Arguments = Callable[["KnownLayout"], Sequence[bytes | str]]


def no_arguments(_served: "KnownLayout") -> Sequence[bytes | str]:
    return ()


class KnownLayout:
    """Key and columns of a generation, and what the scripts know that by."""

    def __init__(self, known: str, layout: TableLayout) -> None:
        self.known, self.layout = known, layout
        self.keys, self.rows = StoredKeys(layout), RedisRows(layout.schema)
        self.fit_key = key_fitter(layout)

    def key_text(self, given: Any) -> bytes:
        return self.keys.text(self.fit_key(given))

    def first_member(self, given: Any) -> bytes:
        bound = fitted_bound(self.layout, given)
        return b"[" + sortable_bound(bound) if bound else LEAST

    def last_member(self, given: Any) -> bytes:
        bound = fitted_bound(self.layout, given)
        return b"(" + sortable_bound(bound) + AFTER if bound else GREATEST


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script has found, of one moment: `notes` are two fields, and what was asked for."""

    served: KnownLayout
    notes: Sequence[Any]

    @property
    def state(self) -> GenerationState:
        return state_in(self.notes)

    @property
    def rows(self) -> list[Row | None]:
        decode = self.served.rows.decode
        return [None if text is None else decode(text) for text in self.notes[-1]]


class RedisReads:
    """Thread-safe; close it when you are done."""

    def __init__(self, link: RedisLink, *, view: str, generation: int | None = None) -> None:
        self._link, self._view = link, view
        self._generation = "" if generation is None else str(generation)
        self._served: KnownLayout | None = None

    @property
    def schema(self) -> Schema:
        return self._ask(NOTES).served.layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._ask(NOTES).served.layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        return self._ask(GET, lambda served: [served.key_text(key) for key in keys]).rows

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        return [row for row in self._range(first, last, limit=limit).rows if row is not None]

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        if not where and not order_by:
            return self.range(limit=limit)
        return self._moment().scan(where=where, order_by=order_by, limit=limit)

    def count(self) -> int:
        return int(self._ask(NOTES).notes[-1])

    def position(self) -> Positions:
        return self._ask(NOTES).state.positions

    def arrow(self) -> pa.Table:
        """All rows, by key."""
        return self._moment().arrow()

    def close(self) -> None:
        self._link.close()

    def _range(self, first: Any, last: Any, *, limit: int | None) -> Answer:
        require_limit(limit)
        count = ALL if limit is None else str(limit)
        return self._ask(
            RANGE, lambda served: [served.first_member(first), served.last_member(last), count]
        )

    def _moment(self) -> ArrowMoment:
        answer = self._range(None, None, limit=None)
        layout = answer.served.layout
        table = pa.Table.from_pylist(answer.rows, nullable_arrow_schema(layout.schema))
        loaded = Loaded(
            schema=layout.schema, key=layout.key, table=table, positions=answer.state.positions
        )
        return ArrowMoment(self._view, loaded)

    def _ask(self, script: str, arguments: Arguments = no_arguments) -> Answer:
        """Ask by the layout that is known; if another one is served by now, learn it first."""
        while True:
            served = self._served
            asked = [served.known, *arguments(served)] if served is not None else [""]
            reply = self._link.ask(script, self._generation, *asked)
            if not reply:
                raise ViewNotFound(view=self._view, place=self._link.place)
            known, *notes = reply
            if served is not None and known.decode() == served.known:
                return Answer(served, notes)
            self._served = KnownLayout(known.decode(), state_in(notes).layout(self._view))


def state_in(notes: Sequence[bytes]) -> GenerationState:
    """Of a generation: what its two fields hold."""
    batch, layout, *_ = notes
    return state_from(json.loads(layout) | json.loads(batch))
