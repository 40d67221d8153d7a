"""The jobs that this worker holds: until when, and what keeps or ends their locks.

Pure; time is a parameter. A job that the application has taken is renewed for as long as it is
held. One that nobody has taken yet is not: it goes back when its lock would have to be renewed, so
that a worker which stops asking keeps nothing from others. A job that is put off is renewed until
its delay is over, and released then.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.base.errors import Retryable
from millstream.queues.acknowledgements import Partition, Place, Settlement
from millstream.queues.deliveries import Delivery

# A lock is renewed when a third of it is over: two renewals may fail before it runs out.
RENEWALS_PER_LOCK = 3
# A job that is put off stays locked, and counts among those in flight: so many at most.
PUT_OFF_MAX = 1_000


class TooManyPutOff(Retryable):
    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"{limit} jobs are put off by this worker already; release without a delay, or wait"
        )
        self.limit = limit


@dataclass(slots=True)
class Hold:
    """One lock. The broker must hear of it at `due_ms`; the job may be held only until then.

    It belongs to one delivery: after a lost lock the same job may be here again, in other hands.
    """

    delivery: Delivery
    due_ms: int
    is_taken: bool = False
    release_at_ms: int | None = None


class HeldJobs:
    """What is held, by place. Owned by the worker's loop."""

    def __init__(self) -> None:
        self._holds: dict[Place, Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def __contains__(self, delivery: Delivery) -> bool:
        hold = self._holds.get(delivery.place)
        return hold is not None and hold.delivery is delivery

    def has(self, place: Place) -> bool:
        """Whether it is held, be it by an older or a newer delivery."""
        return place in self._holds

    def hold(self, deliveries: Iterable[Delivery], *, now_ms: int, lock_ms: int) -> None:
        """They were handed out at `now_ms`."""
        due_ms = now_ms + lock_ms // RENEWALS_PER_LOCK
        for delivery in deliveries:
            self._holds[delivery.place] = Hold(delivery, due_ms)

    def take(self, delivery: Delivery) -> bool:
        """The application has it from now on; False if the lock is lost already."""
        if delivery not in self:
            return False
        self._holds[delivery.place].is_taken = True
        return True

    def put_off(self, place: Place, *, until_ms: int) -> None:
        if sum(hold.release_at_ms is not None for hold in self._holds.values()) >= PUT_OFF_MAX:
            raise TooManyPutOff(limit=PUT_OFF_MAX)
        hold = self._holds[place]
        hold.release_at_ms = until_ms
        hold.due_ms = min(hold.due_ms, until_ms)

    def give_back(self, place: Place) -> None:
        """Nobody works on it: release it as soon as possible."""
        hold = self._holds[place]
        hold.is_taken, hold.due_ms = False, 0

    def drop(self, place: Place) -> None:
        """It was settled, or its lock is lost."""
        self._holds.pop(place, None)

    def lose(self, partitions: Iterable[Partition]) -> tuple[Place, ...]:
        """The session with the leader of these is gone, and with it the locks."""
        gone = {*partitions}
        lost = tuple(place for place in self._holds if place.partition in gone)
        for place in lost:
            del self._holds[place]
        return lost

    def next_due_ms(self, partitions: Iterable[Partition]) -> int | None:
        wanted = {*partitions}
        return min(
            (hold.due_ms for place, hold in self._holds.items() if place.partition in wanted),
            default=None,
        )

    def due(self, partitions: Iterable[Partition], *, now_ms: int) -> dict[Place, Settlement]:
        """What must be said now to keep, or to end, the locks of these partitions."""
        wanted = {*partitions}
        return {
            place: self._settlement(hold, now_ms)
            for place, hold in self._holds.items()
            if place.partition in wanted and hold.due_ms <= now_ms
        }

    def _settlement(self, hold: Hold, now_ms: int) -> Settlement:
        is_over = hold.release_at_ms is not None and hold.release_at_ms <= now_ms
        return Settlement.RENEW if hold.is_taken and not is_over else Settlement.RELEASE

    def renew(self, places: Iterable[Place], *, now_ms: int, lock_ms: int) -> None:
        """The broker has started these locks over, by a request that was sent at `now_ms`."""
        for place in places:
            hold = self._holds.get(place)
            if hold is None:
                continue
            hold.due_ms = now_ms + lock_ms // RENEWALS_PER_LOCK
            if hold.release_at_ms is not None:
                hold.due_ms = min(hold.due_ms, hold.release_at_ms)
