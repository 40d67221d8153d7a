"""Opening a partition's log, and recovering it after a stop that was not clean.

A segment is synced before its successor is created, so a crash can tear only the last one: half
a batch, or holes where the device had not written yet. Nothing of that was acknowledged; it is
cut off. Damage anywhere else, or below the offset that is known to be synced, is something else:
those records were promised. They stay in place, are never served, and are reported with file and
position.
"""

import itertools
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from millstream.base.disk import Disk, DiskFull
from millstream.base.errors import Corrupt
from millstream.log.batch_walk import BrokenAt, Walk
from millstream.log.checked_files import load_checked, save_checked
from millstream.log.compaction_swap import recover_swaps
from millstream.log.config import INT64_MAX, LogConfig
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.producer_state import ProducerStates
from millstream.log.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    read_header,
    read_marker,
)
from millstream.log.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    open_segment,
    segment_name,
)
from millstream.log.snapshots import SnapshotFiles
from millstream.log.transaction_index import BadTransactionIndex, load_aborted, save_aborted

logger = logging.getLogger(__name__)

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
INDEX_FILE = re.compile(r"(\d{20})(\.index|\.timeindex|\.txnindex|\.txnindex\.checked)")
EPOCH_FILE = "leader-epoch-checkpoint"
# Checking so much takes seconds (8 us a batch, however small): say so before.
SLOW_RECOVERY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """With `is_saved` the files have all that a clean stop would write."""

    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    is_saved: bool


def open_log(
    disk: Disk,
    directory: Path,
    snapshots: SnapshotFiles,
    *,
    config: LogConfig,
    now_ms: int,
    start_offset: int,
    synced_offset: int,
    was_closed_cleanly: bool,
) -> OpenedLog:
    """Everything that a PartitionLog holds, as found on disk; an empty directory starts a log."""
    epochs = LeaderEpochs()
    are_known = load_epochs(disk, directory, epochs)
    is_new = not synced_offset and not any(LOG_SUFFIX in name for name in disk.names(directory))
    segments = SegmentOpener(disk, directory, config, epochs, now_ms).open_segments(start_offset)
    active = segments[-1]
    is_sound = is_new or (was_closed_cleanly and is_as_closed(active))
    if not is_sound:
        if active.size_bytes > SLOW_RECOVERY_BYTES:
            mebibytes = active.size_bytes >> 20
            logger.warning("%s: checking %d MiB after a crash", active.log.path, mebibytes)
        recover_segment(disk, active, synced_offset=synced_offset)
        # What survived in the page cache becomes visible now: make it durable first.
        active.log.sync()
        disk.sync_directory(directory)
    if active.end_offset < start_offset:
        _skip_to(active, start_offset)
    if not are_known:
        rebuild_epochs(epochs, segments)
    epochs.truncate_to(active.end_offset + 1)
    active.created_ms = _age_start(active, now_ms)
    newest = snapshots.load_newest(end_offset=active.end_offset)
    from_offset, producers = newest or (segments[0].base_offset, ProducerStates())
    are_aborted_known = _load_aborted(disk, segments, from_offset)
    if not are_aborted_known:
        rebuild_aborted(segments)
    replay(producers, segments, from_offset)
    if not are_aborted_known:
        for segment in segments:
            save_aborted(disk, segment.log.path, segment.aborted)
    is_saved = (
        (is_sound or active.is_empty_on_disk)
        and are_aborted_known
        and from_offset == active.end_offset
    )
    return OpenedLog(segments, producers, epochs, is_saved)


@dataclass(frozen=True, slots=True)
class SegmentOpener:
    """Opens the segments of one partition."""

    disk: Disk
    directory: Path
    config: LogConfig
    epochs: LeaderEpochs
    now_ms: int

    def open_segments(self, start_offset: int) -> list[Segment]:
        recover_swaps(self.disk, self.directory)
        names = set(self.disk.names(self.directory))
        bases = sorted(int(match[1]) for name in names if (match := SEGMENT_FILE.fullmatch(name)))
        self._remove_orphans(names)
        if not bases:
            first = self._open(start_offset, is_active=True)
            self.disk.sync_directory(self.directory)
            return [first]
        closed = [
            self._open_closed(base, next_base, names)
            for base, next_base in itertools.pairwise(bases)
        ]
        return [*closed, self._open(bases[-1], is_active=True)]

    def _open(self, base_offset: int, *, is_active: bool) -> Segment:
        return open_segment(
            self.disk,
            self.directory,
            base_offset,
            epochs=self.epochs,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self.now_ms,
            is_active=is_active,
        )

    def open_swapped(self, base: int, end_offset: int) -> Segment:
        """A segment that was cleaned just now, and has its names."""
        segment = self._open_closed(base, end_offset, set(self.disk.names(self.directory)))
        segment.aborted = load_aborted(self.disk, segment.log.path) or []
        return segment

    def _open_closed(self, base: int, next_base: int, names: set[str]) -> Segment:
        name = segment_name(base)
        has_indexes = {name + OFFSET_INDEX_SUFFIX, name + TIME_INDEX_SUFFIX} <= names
        segment = self._open(base, is_active=False)
        segment.end_offset = next_base
        if has_indexes and segment.offsets.is_whole and segment.times.is_whole:
            segment.confirm_indexes()
        else:
            logger.warning("%s: its index is missing or cut; rebuilt", segment.log.path)
            segment.rebuild_indexes()
        return segment

    def _remove_orphans(self, names: set[str]) -> None:
        """A crash can leave indexes of a deleted segment, and files that were about to replace
        others."""
        for name in names:
            match = INDEX_FILE.fullmatch(name)
            if name.endswith(".tmp") or (match and match[1] + LOG_SUFFIX not in names):
                self.disk.remove(self.directory / name)


def is_as_closed(active: Segment) -> bool:
    """After a clean stop the indexes are complete: the last batch is where they say."""
    if not (active.offsets.is_whole and active.times.is_whole):
        return False
    if active.size_bytes == 0:
        return len(active.offsets) == 0
    last = active.offsets.last
    try:
        header = read_header(active.log.read(last.position if last else 0, HEADER_BYTES))
    except CorruptBatch:
        return False
    if last is None or (header.last_offset, last.position + header.size_bytes) != (
        last.offset,
        active.size_bytes,
    ):
        return False
    active.note_last(last.position, header)
    return active.has_largest(active.times.last)


def recover_segment(disk: Disk, segment: Segment, *, synced_offset: int) -> None:
    """Check every batch, rebuild the indexes, cut off a torn tail.

    A segment that ends in damage to what was synced is closed: nothing can be appended behind it.
    """
    segment.start_over()
    log = segment.log
    walk = Walk(log.read, log.size, INT64_MAX, segment.epochs, log.size, may_have_gaps=False)
    position, expected, breaks = 0, segment.base_offset, list[BrokenAt]()
    while True:
        try:
            for at, header in walk.batches(position, expected):
                segment.note(at, header)
            break
        except BrokenAt as broken:
            found = walk.find(broken, log.size)
            if segment.end_offset >= synced_offset:
                _cut_off(disk, segment, broken, must_keep=found is not None)
                break
            breaks.append(broken)
            if found is None:
                break
            position, expected = found
    if breaks:
        segment.check_below = log.size
    if segment.end_offset < synced_offset:
        _close_short(segment, synced_offset)
    for each in breaks:
        segment.damage(each)


def _close_short(segment: Segment, synced_offset: int) -> None:
    logger.error(
        "%s: ends at offset %d, but was synced up to %d; what is missing was acknowledged. Restore "
        "the file from a copy, and check the disk; the log goes on behind the gap",
        segment.log.path,
        segment.end_offset,
        synced_offset,
    )
    segment.seal_at(synced_offset)


def _cut_off(disk: Disk, segment: Segment, broken: BrokenAt, *, must_keep: bool) -> None:
    if must_keep:
        _keep_aside(disk, segment, broken.position)
    logger.warning(
        "%s: cut off %d bytes from byte %d on that a crash left unfinished (%s); "
        "nothing of it was acknowledged as synced",
        segment.log.path,
        segment.log.size - broken.position,
        broken.position,
        broken.error.reason,
    )
    segment.log.truncate(broken.position)


def _keep_aside(disk: Disk, segment: Segment, position: int) -> None:
    """Intact batches lie behind the break. They were not synced; keep them for the curious."""
    path: Path = segment.log.path.with_suffix(f".torn-{position}")
    try:
        copy = disk.open(path)
        copy.overwrite(segment.log.read(position, segment.log.size - position))
        copy.close()
    except DiskFull:
        logger.warning("%s: no room to keep the intact batches that are cut off", path)
    else:
        logger.warning("%s: holds intact batches of what is cut off", path)


def _skip_to(active: Segment, start_offset: int) -> None:
    """Everything was deleted up to an offset that the log has lost since."""
    logger.error(
        "%s: ends at offset %d, but records up to %d were deleted; the log goes on from there",
        active.log.path,
        active.end_offset,
        start_offset,
    )
    active.seal_at(start_offset)


def _age_start(active: Segment, now_ms: int) -> int:
    """When the first record came in, as far as the file knows; else now."""
    try:
        timestamp = read_header(active.log.read(0, HEADER_BYTES)).base_timestamp
    except CorruptBatch:
        return now_ms
    return timestamp if 0 <= timestamp <= now_ms else now_ms


def _load_aborted(disk: Disk, segments: list[Segment], from_offset: int) -> bool:
    """Fill the lists of aborted transactions; False if one that is needed cannot be believed.

    What was written from `from_offset` on is read again anyway.
    """
    for segment in segments:
        try:
            aborted = load_aborted(disk, segment.log.path)
        except BadTransactionIndex as error:
            logger.error("%s: damaged transaction index (%s); rebuilt", segment.log.path, error)
            return False
        if aborted is None and segment.base_offset < from_offset:
            logger.warning("%s: its transaction index is missing; rebuilt", segment.log.path)
            return False
        segment.aborted = aborted or []
    return True


def rebuild_aborted(segments: list[Segment]) -> None:
    """Read from the whole log which transactions were aborted."""
    replay(ProducerStates(), segments, segments[0].base_offset)


def replay(producers: ProducerStates, segments: list[Segment], from_offset: int) -> None:
    """Take in what the log says from an offset on: of producers and aborted transactions."""
    for segment in segments:
        segment.aborted = [one for one in segment.aborted if one.last_offset < from_offset]
        if segment.end_offset > from_offset:
            for position, header in segment.batches_from(from_offset):
                if header.base_offset >= from_offset:
                    note_batch(producers, segment, position, header)


def note_batch(
    producers: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> None:
    """Take a batch that is read back from the log into what its producer is known for."""
    marker = None
    if header.is_control:
        marker = read_marker(segment.log.read(position, header.size_bytes))
    if marker is None:
        producers.note(header)
        return
    ended = producers.note_marker(header, marker)
    if ended is not None and not ended.is_commit:
        segment.aborted.append(ended.aborted)


def load_epochs(disk: Disk, directory: Path, epochs: LeaderEpochs) -> bool:
    """Fill `epochs` from their file; False if that is not possible."""
    path = directory / EPOCH_FILE
    content = load_checked(disk, path)
    try:
        epochs.entries[:] = LeaderEpochs.from_text((content or b"").decode()).entries
    except (Corrupt, UnicodeDecodeError) as error:
        if content is not None:
            logger.error("%s: damaged (%s); rebuilt from the log", path, error)
        return False
    return True


def rebuild_epochs(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    found = LeaderEpochs()
    for segment in segments:
        for _, header in segment.intact_batches():
            found.begin(header.leader_epoch, header.base_offset)
    epochs.entries[:] = found.entries


def save_epochs(disk: Disk, directory: Path, epochs: LeaderEpochs) -> None:
    save_checked(disk, directory / EPOCH_FILE, epochs.to_text().encode())
