"""Joins of a stream with a table for many keys at once: the states of a slot, kept in pages. Pure.

A slot is a share of all keys (paged_state.py). What is kept is read for the keys that a batch
brings, and written for those whose state changed. A second map says when time alone has something
to do for a key; so that when it has, only those keys are looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.processing.operators.stream_table import Arrival, Step, StreamTableJoin, TableChange
from millstream.processing.state.paged_map import PagedMap, PageStore


@dataclass(slots=True)
class Brought:
    """What a batch has for one key."""

    changes: list[TableChange] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)


class JoinSlot:
    """For one batch: what it changes is kept when it is saved."""

    def __init__(self, join: StreamTableJoin[Any], store: PageStore) -> None:
        self._join = join
        self._states = PagedMap(store, "state")
        self._due = PagedMap(store, "due")

    def step(self, brought: dict[str, Brought], *, watermark_ms: int | None) -> list[Step]:
        return [self._step(key, found, watermark_ms=watermark_ms) for key, found in brought.items()]

    def expire(self, *, watermark_ms: int) -> list[Step]:
        """For the keys that wait for no more than this watermark."""
        due = [key for key, due_ms in self._due.items() if due_ms <= watermark_ms]
        return self.step({key: Brought() for key in due}, watermark_ms=watermark_ms)

    def _step(self, key: str, brought: Brought, *, watermark_ms: int | None) -> Step:
        known = self._states.get(key)
        state = self._join.recall(known)
        step = self._join.step(state, brought.changes, brought.arrivals, watermark_ms=watermark_ms)
        keep(self._states, key, state.plain(), known)
        keep(self._due, key, self._join.due_ms(state), self._due.get(key))
        return step

    def due_ms(self, keys: Iterable[str] | None = None) -> int | None:
        """The first time at which something is to be done for these keys; None: for any key."""
        among = self._due.values() if keys is None else map(self._due.get, keys)
        return min((due_ms for due_ms in among if due_ms is not None), default=None)

    def save(self) -> None:
        self._states.save()
        self._due.save()


def keep(kept: PagedMap, key: str, value: Any, known: Any) -> None:
    if value == known:
        return
    if value is None:
        del kept[key]
    else:
        kept[key] = value
