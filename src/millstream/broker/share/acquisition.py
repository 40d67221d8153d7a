"""Which records a member gets next, out of those that are there to be had.

Given what was read of the log and what is available, it chooses; the choice is carried out in
`share_partition.py`. Records whose attempts have failed before are handed out in smaller and
smaller parts, and for the last time each alone, so that one bad record does not take its
neighbours with it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from millstream.base.offsets import OffsetRange
from millstream.broker.share.delivery import Delivery
from millstream.broker.share.offset_runs import Run
from millstream.log.record_batch import BatchHeader
from millstream.log.transaction_index import AbortedTransaction

# From this many failed attempts on records are suspect; above it, from half of all attempts on.
SUSPECT_ATTEMPTS_MIN = 2


class AcquireMode(IntEnum):
    """ShareAcquireMode of ShareFetch, from version 2 on (KIP-1206)."""

    BATCH_OPTIMIZED = 0  # `records_max` is rounded up to whole batches of the log
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a ShareFetch asks for. `batch_size`: how many records it likes to settle at once."""

    member_id: str
    records_max: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A read of the log from `offset` to `end`, and the batches in it that members may see.

    Offsets in between, which are in none of them, have nothing to hand out: compaction took the
    record away, or it is a marker, or its transaction was aborted.
    """

    offset: int
    batches: tuple[OffsetRange, ...]
    end: int


def fetched_from(
    offset: int, headers: Iterable[BatchHeader], aborted: Iterable[AbortedTransaction] = ()
) -> Fetched:
    """Of the batches that a read gave; `aborted` is empty for a group that reads uncommitted."""
    aborted, headers = [*aborted], [*headers]
    return Fetched(
        offset=offset,
        batches=tuple(
            OffsetRange(start=header.base_offset, end=header.last_offset + 1)
            for header in headers
            if header.record_count and not header.is_control and not _is_aborted(header, aborted)
        ),
        end=headers[-1].last_offset + 1 if headers else offset,
    )


def _is_aborted(header: BatchHeader, aborted: Iterable[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Everything before `end` was looked at; of that, `runs` are taken."""

    runs: tuple[Run[Delivery], ...]
    end: int


def choose(
    available: Iterable[Run[Delivery]], demand: Demand, *, attempts_max: int, end: int
) -> Choice:
    """`available` in order, no run across batches of the log; `end` is how far the read went."""
    taken: list[Run[Delivery]] = []
    left = demand.records_max
    for run in available:
        if left <= 0 or (taken and is_suspect(run.value, attempts_max)):
            return Choice(runs=tuple(taken), end=run.start)
        cut = _cut(run, demand.mode, left, attempts_max)
        taken.append(cut)
        left -= cut.end - cut.start
        if cut.end < run.end or is_suspect(run.value, attempts_max):
            return Choice(runs=tuple(taken), end=cut.end)
    return Choice(runs=tuple(taken), end=end)


def is_suspect(delivery: Delivery, attempts_max: int) -> bool:
    return delivery.attempts >= suspect_attempts(attempts_max)


def suspect_attempts(attempts_max: int) -> int:
    return max(SUSPECT_ATTEMPTS_MIN, (attempts_max + 1) // 2)


def _cut(run: Run[Delivery], mode: AcquireMode, left: int, attempts_max: int) -> Run[Delivery]:
    end = run.end
    if mode is AcquireMode.RECORD_LIMIT:
        end = min(end, run.start + left)
    if is_suspect(run.value, attempts_max):
        end = min(end, run.start + _together_max(run.value, attempts_max))
    return run._replace(end=end)


def _together_max(delivery: Delivery, attempts_max: int) -> int:
    """How many suspect records may go together: half as many with each attempt, at last one."""
    is_last = delivery.attempts == attempts_max - 1
    if is_last and attempts_max > SUSPECT_ATTEMPTS_MIN:
        return 1
    return max(1, delivery.batch_len >> (delivery.attempts - suspect_attempts(attempts_max) + 1))


def bundle(runs: Iterable[Run[Delivery]], demand: Demand) -> list[Run[Delivery]]:
    """Join neighbours that are alike; in batches of the size that the member wants."""
    joined: list[Run[Delivery]] = []
    is_limited = demand.mode is AcquireMode.RECORD_LIMIT
    for run in runs:
        last = joined[-1] if joined else None
        is_next = last is not None and last.end == run.start and last.value == run.value
        if last is not None and is_next and (is_limited or _has_room(last, demand)):
            joined[-1] = last._replace(end=run.end)
        else:
            joined.append(run)
    return joined


def _has_room(run: Run[Delivery], demand: Demand) -> bool:
    return run.end - run.start < demand.batch_size
