"""Which records of a refused batch are to blame (KIP-467).

Whoever wrote the others of the batch is told that theirs were not at fault. Looked at only when a
batch is refused already; a batch whose records cannot be read names none.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from millstream.base.disk import Bytes
from millstream.base.errors import MillstreamError
from millstream.base.record import Record
from millstream.log.record_batch import decode_records

# An answer has a line of some 100 bytes for each; a batch may have a hundred thousand records.
NAMED_MAX = 1_000


class RecordFault(NamedTuple):
    """`place` is the record's, counted in its batch from 0."""

    place: int
    reason: str


Faults = tuple[RecordFault, ...]
Judge = Callable[[Record], str | None]


def find_faults(batch: Bytes, judge: Judge, *, bytes_max: int) -> Faults:
    """The first records that `judge` gives a reason to refuse; none if all are over `bytes_max`."""
    try:
        return tuple(islice(_faults(batch, judge, bytes_max), NAMED_MAX))
    except MillstreamError:
        return ()


def _faults(batch: Bytes, judge: Judge, bytes_max: int) -> Iterator[RecordFault]:
    for place, record in enumerate(decode_records(batch, bytes_max=bytes_max)):
        reason = judge(record)
        if reason is not None:
            yield RecordFault(place, reason)


def without_key(record: Record) -> str | None:
    return "a compacted topic takes no record without a key" if record.key is None else None


def outside_of(earliest_ms: int, latest_ms: int) -> Judge:
    """Judge by the timestamp: a topic takes those from `earliest_ms` to `latest_ms`."""

    def judge(record: Record) -> str | None:
        if earliest_ms <= record.timestamp_ms <= latest_ms:
            return None
        return f"its timestamp {record.timestamp_ms} is not from {earliest_ms} to {latest_ms}"

    return judge
