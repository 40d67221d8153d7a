"""Which transactions of a segment were aborted: what a `read_committed` reader must leave out.

An entry stands in the segment that holds the transaction's abort marker. The list of a growing
segment is in memory and can be rebuilt from the log; it is written once the segment is closed,
with a checked copy beside it, since a reader that misses an entry would show aborted data. An
empty list has the copy alone: so a list that is missing can be told from one that is empty.
Pure but for reading and writing these files.
"""

import bisect
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from millstream.base.disk import Bytes, Disk, read_file, replace_file
from millstream.base.errors import Corrupt
from millstream.log.checked_files import (
    CHECKED_SUFFIX,
    checked_copy,
    copy_of,
    load_checked,
    save_checked,
)

TXN_INDEX_SUFFIX = ".txnindex"
TXN_INDEX_SUFFIXES = (TXN_INDEX_SUFFIX, TXN_INDEX_SUFFIX + CHECKED_SUFFIX)

# One entry of `.txnindex`, big-endian, sorted by last_offset, in Kafka's format:
#
#   version             int16   0
#   producer_id         int64
#   first_offset        int64   of the transaction's first record
#   last_offset         int64   of its abort marker
#   last_stable_offset  int64   of the log once this transaction had ended
ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class BadTransactionIndex(Corrupt):
    """A file that cannot be a list of aborted transactions; it is rebuilt from the log."""


class AbortedTransaction(NamedTuple):
    """Records of this producer from `first_offset` to `last_offset` (its marker) do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_from(aborted: Sequence[AbortedTransaction], start: int) -> Iterator[AbortedTransaction]:
    """Those whose marker is at `start` or behind it, in the order of their markers."""
    first = bisect.bisect_left(aborted, start, key=lambda one: one.last_offset)
    return (aborted[number] for number in range(first, len(aborted)))


def to_bytes(aborted: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *one) for one in aborted)


def from_bytes(data: Bytes) -> list[AbortedTransaction]:
    if len(data) % ENTRY.size:
        raise BadTransactionIndex(f"{len(data)} bytes are no whole number of entries")
    found: list[AbortedTransaction] = []
    for version, *entry in ENTRY.iter_unpack(data):
        one = AbortedTransaction(*entry)
        if version != VERSION or not 0 <= one.first_offset <= one.last_offset:
            raise BadTransactionIndex(f"entry {len(found)} is version {version}, {one}")
        found.append(one)
    return found


def save_aborted(disk: Disk, path: Path, aborted: Iterable[AbortedTransaction]) -> None:
    """Write the index of the segment at `path` (any suffix), unless it is there already."""
    content, path = to_bytes(aborted), path.with_suffix(TXN_INDEX_SUFFIX)
    stored = read_file(disk, path)
    if (stored or b"") == content and read_file(disk, copy_of(path)) == checked_copy(content):
        return
    if content or stored is not None:
        save_checked(disk, path, content)
    else:
        replace_file(disk, copy_of(path), checked_copy(content))


def load_aborted(disk: Disk, path: Path) -> list[AbortedTransaction] | None:
    """The index of the segment at `path`; None if it is missing."""
    content = load_checked(disk, path.with_suffix(TXN_INDEX_SUFFIX))
    return None if content is None else from_bytes(content)
