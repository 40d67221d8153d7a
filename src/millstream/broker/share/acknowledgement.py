"""What a member says of records that it holds, and what is wrong with saying it so.

Whether it holds them is asked in `share_partition.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, pairwise

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange


class AcknowledgeType(IntEnum):
    """Kafka's numbers."""

    GAP = 0  # there is no record at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # KIP-1222: still at work, start the lock over


class InvalidAcknowledgement(Rejected):
    """A request that makes no sense, whatever the state of the records."""

    def __init__(self, *, offsets: OffsetRange, reason: str) -> None:
        super().__init__(f"the acknowledgement of offsets {offsets}: {reason}")
        self.offsets, self.reason = offsets, reason


class NotAcquired(Rejected):
    """The member does not hold the record, or no longer: its lock ran out, or it said so before."""

    def __init__(self, *, offset: int, member_id: str) -> None:
        super().__init__(
            f"offset {offset} is not held by member {member_id}: its lock has run out, or it was "
            "acknowledged before; another member may get the record"
        )
        self.offset, self.member_id = offset, member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """One type for all of `offsets`, or one for each of them."""

    offsets: OffsetRange
    types: tuple[AcknowledgeType, ...]

    def parts(self) -> Iterator[tuple[OffsetRange, AcknowledgeType]]:
        """Neighbours of one type together."""
        if len(self.types) == 1:
            yield self.offsets, self.types[0]
            return
        start = self.offsets.start
        for kind, alike in groupby(self.types):
            end = start + len([*alike])
            yield OffsetRange(start=start, end=end), kind
            start = end


def acknowledgement_of(first: int, last: int, types: Iterable[int]) -> Acknowledgement:
    """From a batch of the wire, where the last offset is included."""
    offsets = OffsetRange(start=first, end=last + 1)
    try:
        return Acknowledgement(offsets=offsets, types=tuple(map(AcknowledgeType, types)))
    except ValueError as error:
        raise InvalidAcknowledgement(offsets=offsets, reason=str(error)) from error


def check_acknowledgements(batches: Iterable[Acknowledgement], *, may_renew: bool) -> None:
    """Raise unless they can be understood. `may_renew`: the request says that it renews."""
    batches = [*batches]
    for batch in batches:
        fault = _find_fault(batch, may_renew)
        if fault is not None:
            raise InvalidAcknowledgement(offsets=batch.offsets, reason=fault)
    for before, batch in pairwise(batches):
        if batch.offsets.start < before.offsets.end:
            reason = f"it does not follow on {before.offsets}"
            raise InvalidAcknowledgement(offsets=batch.offsets, reason=reason)


def _find_fault(batch: Acknowledgement, may_renew: bool) -> str | None:
    if len(batch.offsets) == 0 or batch.offsets.start < 0:
        return "there are no such offsets"
    if not batch.types:
        return "it has no type"
    if len(batch.types) not in (1, len(batch.offsets)):
        return f"{len(batch.types)} types for {len(batch.offsets)} offsets"
    if AcknowledgeType.RENEW in batch.types and not may_renew:
        return "a renewal in a request that does not say that it renews"
    return None
