"""How far the load of a table is, as it is kept in `_captures`, and how it goes on. Pure.

    {"phase": "reading", "ranges": [[after, until, is_done], ...], "ends": [..],
     "rows": 12000, "rows_estimate": 50000, "position": "0/1A2B"}

`ranges` are parts of the table that are read side by side; `after` is the last key that went out.
None of them yet: the table is not split so far. `ends` are the ends of its topic's partitions when
the load began: what is older and not written again is swept. `position` is where the database's
log was when the last rows were read; when the load is done, the topic is consistent with it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from millstream.base.errors import Corrupt
from millstream.base.quantity import MIB
from millstream.capture.source import Chunk

# What a chunk should hold, so that those that are read ahead fit into memory.
CHUNK_BYTES: Final = 2 * MIB
FIRST_CHUNK_ROWS_MAX: Final = 1_000  # until it is known how wide a row is


class Phase(StrEnum):
    READING = "reading"
    SWEEPING = "sweeping"
    DONE = "done"


class LoadStateUnreadable(Corrupt):
    def __init__(self, *, table: str, text: str, reason: str) -> None:
        super().__init__(
            f"The state of the load of {table} cannot be read ({reason}): {text[:200]!r}. "
            f"`millstream capture reload {table}` begins it anew"
        )
        self.table, self.text = table, text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Keys after `after`, up to `until`; None: no bound."""

    after: str | None = None
    until: str | None = None
    is_done: bool = False

    def moved(self, last_key: str | None) -> Self:
        if last_key is None:
            return replace(self, is_done=True)
        return replace(self, after=last_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLoad:
    """Owned by the course; one version of it is kept with every chunk that goes out."""

    phase: Phase = Phase.READING
    ranges: tuple[KeyRange, ...] = ()
    ends: tuple[int, ...] = ()
    rows: int = 0
    rows_estimate: int = 0
    position: str | None = None

    @classmethod
    def begun(cls, ends: Sequence[int]) -> Self:
        return cls(ends=tuple(ends))

    def split(self, parts: Sequence[tuple[str | None, str | None]], rows_estimate: int) -> Self:
        ranges = tuple(KeyRange(after=after, until=until) for after, until in parts)
        return replace(self, ranges=ranges, rows_estimate=max(0, rows_estimate))

    def after_chunk(self, place: int, chunk: Chunk) -> Self:
        """The range at this place went out up to the chunk's end."""
        ranges = list(self.ranges)
        ranges[place] = ranges[place].moved(chunk.last_key)
        rows = self.rows + len(chunk.rows)
        moved = replace(self, ranges=tuple(ranges), rows=rows, position=chunk.closes_at)
        return moved.swept_next() if all(one.is_done for one in ranges) else moved

    def swept_next(self) -> Self:
        """What follows the reading. Where the topic was empty, nothing can be too many."""
        return replace(self, phase=Phase.SWEEPING if any(self.ends) else Phase.DONE)

    def truncated(self, ends: Sequence[int]) -> Self:
        """All rows written so far are gone: they are swept, once the reading is done."""
        if self.phase is Phase.READING:
            return replace(self, ends=tuple(ends))
        return replace(self, ends=tuple(ends)).swept_next()

    def done(self) -> Self:
        return replace(self, phase=Phase.DONE)


def load_to_json(load: TableLoad) -> str:
    return json.dumps(
        {
            "phase": load.phase.value,
            "ranges": [[one.after, one.until, one.is_done] for one in load.ranges],
            "ends": load.ends,
            "rows": load.rows,
            "rows_estimate": load.rows_estimate,
            "position": load.position,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def load_from_json(table: str, text: str) -> TableLoad:
    try:
        return _load_from(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LoadStateUnreadable(table=table, text=text, reason=reason) from error


def is_unfinished(table: str, text: str | None) -> bool:
    """Whether a load began, and did not end."""
    return text is not None and load_from_json(table, text).phase is not Phase.DONE


def _load_from(parts: dict[str, Any]) -> TableLoad:
    return TableLoad(
        phase=Phase(parts["phase"]),
        ranges=tuple(
            KeyRange(after=after, until=until, is_done=is_done)
            for after, until, is_done in parts["ranges"]
        ),
        ends=tuple(parts["ends"]),
        rows=parts["rows"],
        rows_estimate=parts["rows_estimate"],
        position=parts["position"],
    )


def chunk_rows(rows_max: int, *, rows_read: int, bytes_read: int) -> int:
    """How many rows the next chunk shall have, by what those before it weighed."""
    if not rows_read:
        return min(rows_max, FIRST_CHUNK_ROWS_MAX)
    return max(1, min(rows_max, CHUNK_BYTES * rows_read // max(1, bytes_read)))
