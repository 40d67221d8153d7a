"""Which offsets must be read to get certain events, and which need not: what is in memory, and what
is far between. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.base.offsets import OffsetRange
from millstream.eventsourcing.partition_state import PartitionState, ReadRecords

# To read on over so many offsets takes as long as to ask for others.
GAP_OFFSETS_MAX = 500
# Of events that lie scattered, so many are looked for at once.
CHUNK_EVENTS = 8_192


@dataclass(frozen=True, slots=True)
class Scan:
    """Read the range; of its events those at `offsets` are wanted, or all."""

    within: OffsetRange
    offsets: frozenset[int] | None


def plan_scans(seqs: Sequence[int], state: PartitionState) -> tuple[list[Scan], ReadRecords]:
    """For rising numbers: what to read, and what is in memory."""
    known = bisect_left(seqs, state.recent.first_seq)
    old, new = seqs[:known], seqs[known:]
    values = [state.recent.value(seq) for seq in new]
    recent = ReadRecords([state.offset_of(seq) for seq in new], values)
    scans: list[Scan] = []
    for start in range(0, len(old), CHUNK_EVENTS):
        _add_chunk(scans, old[start : start + CHUNK_EVENTS], state)
    return scans, recent


def _add_chunk(scans: list[Scan], chunk: Sequence[int], state: PartitionState) -> None:
    first, last = state.offset_of(chunk[0]), state.offset_of(chunk[-1])
    if chunk[-1] - chunk[0] != len(chunk) - 1:
        scans += _scattered([state.offset_of(seq) for seq in chunk])
    elif _is_before(scans, first):
        scans[-1] = Scan(OffsetRange(start=scans[-1].within.start, end=last + 1), None)
    else:
        scans.append(Scan(OffsetRange(start=first, end=last + 1), None))


def _is_before(scans: Sequence[Scan], first: int) -> bool:
    """Whether nothing but markers is between the last scan and this offset."""
    return bool(scans) and scans[-1].offsets is None and first - scans[-1].within.end <= 1


def _scattered(offsets: Sequence[int]) -> list[Scan]:
    scans, start = [], 0
    for at in range(1, len(offsets) + 1):
        if at == len(offsets) or offsets[at] - offsets[at - 1] > GAP_OFFSETS_MAX:
            wanted = offsets[start:at]
            within = OffsetRange(start=wanted[0], end=wanted[-1] + 1)
            scans.append(Scan(within, frozenset(wanted)))
            start = at
    return scans
