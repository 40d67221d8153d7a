"""States that the writer keeps, so that a stream that is used often is not replayed each time.

Lent to one decision at a time: who takes one out has it alone, and puts it back if it is whole. A
state may hold events that are staged and never get committed. So it is *sure* only when a receipt
has come for its last event; before, the event's id is compared with what is in the stream.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from millstream.eventsourcing.aggregate import Aggregate, copied

STATES_MAX = 10_000


@dataclass(slots=True, kw_only=True)
class KeptState:
    """`last_id`: of the last event in it. `snapshot_at`: the version of its last snapshot."""

    aggregate: Aggregate
    last_id: str | None = None
    is_sure: bool = False
    snapshot_at: int = 0


class KeptStates:
    """Thread-safe. At most so many; the one that was used longest ago goes first."""

    def __init__(self, states_max: int = STATES_MAX) -> None:
        self._states_max = states_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, KeptState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, stream: str) -> KeptState | None:
        with self._lock:
            return self._kept.pop(stream, None)

    def keep(self, stream: str, state: KeptState) -> None:
        with self._lock:
            self._kept[stream] = state
            self._kept.move_to_end(stream)
            while len(self._kept) > self._states_max:
                self._kept.popitem(last=False)

    def confirm(self, stream: str, event_ids: Collection[str]) -> None:
        """These are committed."""
        with self._lock:
            kept = self._kept.get(stream)
            if kept is not None and kept.last_id in event_ids:
                kept.is_sure = True

    def sure_copy(self, stream: str) -> Aggregate | None:
        """For a reader: a copy of a state whose events are all committed."""
        with self._lock:
            kept = self._kept.get(stream)
            return copied(kept.aggregate) if kept is not None and kept.is_sure else None

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
