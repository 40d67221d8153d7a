"""A share partition with a log under it, in the words of the tests."""

from millstream.base.offsets import OffsetRange
from millstream.broker.share.acknowledgement import Acknowledgement, AcknowledgeType
from millstream.broker.share.acquisition import AcquireMode, Demand, Fetched
from millstream.broker.share.delivery import RecordState
from millstream.broker.share.share_partition import (
    AcquiredRecords,
    DeadLetters,
    SharePartition,
    ShareTerms,
)
from millstream.broker.share.share_state import ShareState

ADA, BOB = "ada", "bob"
LOCK_MS = 30_000

Spans = list[tuple[int, int]]


def offsets(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


class Queue:
    """Batches are (start, end); what a read gives begins with the batch of the offset asked for."""

    def __init__(self, *batches: tuple[int, int], **terms: int) -> None:
        self.batches = [offsets(*batch) for batch in batches]
        self.end = self.batches[-1].end if self.batches else 0
        self.terms = ShareTerms(lock_ms=LOCK_MS, **terms)
        self.partition = SharePartition(0, terms=self.terms)
        self.now_ms = 0

    def acquire(
        self,
        member_id: str = ADA,
        *,
        records_max: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Spans:
        return [(one.offsets.start, one.offsets.end) for one in self.acquired(
            member_id, records_max=records_max, batch_size=batch_size, mode=mode
        )]  # fmt: skip

    def acquired(
        self,
        member_id: str = ADA,
        *,
        records_max: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> tuple[AcquiredRecords, ...]:
        offset = self.partition.next_fetch_offset
        if offset is None:
            return ()
        demand = Demand(
            member_id=member_id, records_max=records_max, batch_size=batch_size, mode=mode
        )
        return self.partition.acquire(self.read(offset), demand, now_ms=self.now_ms)

    def read(self, offset: int) -> Fetched:
        batches = tuple(batch for batch in self.batches if batch.end > offset)
        return Fetched(offset=offset, batches=batches, end=max(self.end, offset))

    def acknowledge(
        self, start: int, end: int, *types: AcknowledgeType, member_id: str = ADA
    ) -> DeadLetters:
        batch = Acknowledgement(
            offsets=offsets(start, end), types=types or (AcknowledgeType.ACCEPT,)
        )
        return self.partition.acknowledge(member_id, [batch], now_ms=self.now_ms)

    def give_back(self, member_id: str = ADA) -> DeadLetters:
        return self.partition.give_back(member_id, now_ms=self.now_ms)

    def release(self, start: int, end: int, *, member_id: str = ADA) -> DeadLetters:
        return self.acknowledge(start, end, AcknowledgeType.RELEASE, member_id=member_id)

    def wait(self, ms: int) -> DeadLetters:
        self.now_ms += ms
        return self.partition.expire(self.now_ms)

    def fail(self, times: int, *, member_id: str = ADA) -> None:
        """Everything is taken and released again, that often."""
        for _ in range(times):
            while taken := self.acquire(member_id):
                for span in taken:
                    self.last_taken = span
            self.wait(LOCK_MS)

    def restart(self, state: ShareState) -> None:
        self.partition = SharePartition.restored(state, terms=self.terms)

    @property
    def states(self) -> list[tuple[int, int, RecordState, int]]:
        return [
            (run.start, run.end, run.value.state, run.value.attempts) for run in self.partition.runs
        ]
