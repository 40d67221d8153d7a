"""A subscription of a store with one partition that another thread may stop."""

import threading

from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.query import Query
from millstream.eventsourcing.stored_event import StoredEvent

# A wait is cut into such pieces: who is stopped meanwhile ends soon.
WAIT_SECONDS = 0.2


class Followed:
    """One thread calls `next`, any may call `stop`."""

    def __init__(self, store: EventStore, after: int | None, where: Query) -> None:
        token = store.token_behind(after or 0)
        self._events = store.subscribe(after=token, where=where, timeout=WAIT_SECONDS)
        self._is_stopped = False
        self._in_use = threading.Lock()

    def next(self) -> StoredEvent | None:
        """Waits for one; None when it was stopped."""
        with self._in_use:
            while not self._is_stopped:
                for event in self._events:
                    return event
            self._events.close()
        return None

    def stop(self) -> None:
        """Who waits in `next` closes it, else it is closed now."""
        self._is_stopped = True
        if self._in_use.acquire(blocking=False):
            self._events.close()
            self._in_use.release()
