"""How far one record has come on its way through a share group.

                acquire                accept
    AVAILABLE ───────────> ACQUIRED ───────────> ACKNOWLEDGED
        ^                     │  │    reject, gap, or its deliveries are used up
        └─────────────────────┘  └─────────────> ARCHIVED
          release, time is up

A value that is replaced, never changed. An attempt is not stored while it lasts: on disk a record
that somebody holds is what it was before (`durable`), so a crash gives it back.
"""

from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """Kafka's numbers: they are stored, except ACQUIRED."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Lock(NamedTuple):
    """Until then, only this member may say what becomes of the record."""

    member_id: str
    until_ms: int


class DurableDelivery(NamedTuple):
    """What of a delivery outlives the broker. Over time it only grows, in this order of fields."""

    attempts: int
    state: RecordState


UNTOUCHED = DurableDelivery(0, RecordState.AVAILABLE)


class Delivery(NamedTuple):
    """`attempts` is how often the record was handed out; `lock` is there while it is ACQUIRED.

    `batch_len` is how many records were handed out together the first time: if their attempts
    fail, fewer and fewer of them go together, until the bad one is alone.
    """

    state: RecordState = RecordState.AVAILABLE
    attempts: int = 0
    lock: Lock | None = None
    batch_len: int = 0

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def durable(self) -> DurableDelivery:
        if self.state is RecordState.ACQUIRED:
            return DurableDelivery(self.attempts - 1, RecordState.AVAILABLE)
        return DurableDelivery(self.attempts, self.state)

    def acquired(self, lock: Lock, batch_len: int) -> "Delivery":
        size = self.batch_len or batch_len
        return Delivery(RecordState.ACQUIRED, self.attempts + 1, lock, size)

    def renewed(self, lock: Lock) -> "Delivery":
        return self._replace(lock=lock)

    def accepted(self) -> "Delivery":
        return Delivery(RecordState.ACKNOWLEDGED, self.attempts)

    def archived(self) -> "Delivery":
        return Delivery(RecordState.ARCHIVED, self.attempts)

    def released(self) -> "Delivery":
        """The attempt failed. Whether there is another one is for the partition to say."""
        return Delivery(RecordState.AVAILABLE, self.attempts, None, self.batch_len)

    def returned(self) -> "Delivery":
        """As if it had not been handed out this time."""
        return Delivery(RecordState.AVAILABLE, self.attempts - 1, None, self.batch_len)


NEW = Delivery()
