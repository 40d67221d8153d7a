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

from millstream.base.disk import Disk, read_file, replace_file
from millstream.base.errors import Corrupt
from millstream.log.config import LogConfig
from millstream.log.leader_epochs import LeaderEpochs
from millstream.log.producer_state import ProducerStates
from millstream.log.record_batch import CorruptBatch
from millstream.log.segment import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    BrokenAt,
    Segment,
    find_batch,
    open_segment,
    segment_name,
    walk_batches,
)
from millstream.log.snapshots import SnapshotFiles

logger = logging.getLogger(__name__)

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
INDEX_FILE = re.compile(r"(\d{20})(\.index|\.timeindex)")
EPOCH_FILE = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class OpenedLog:
    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    # The last segment ends in damage: nothing can be appended behind it.
    is_sealed: bool


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
    opener = _Opener(disk, directory, config, now_ms)
    segments = opener.open_segments(start_offset)
    active = segments[-1]
    epochs = load_epochs(disk, directory)
    is_sealed = False
    if not (was_closed_cleanly and is_as_closed(active)):
        is_sealed = recover_segment(disk, active, synced_offset=synced_offset)
        # What survived in the page cache becomes visible now: make it durable first.
        active.log.sync()
        if is_sealed:
            active.seal()
        for _, header in active.intact_batches():
            epochs.begin(header.leader_epoch, header.base_offset)
    epochs.truncate_to(active.end_offset + 1)
    active.created_ms = _age_start(active, now_ms)
    return OpenedLog(segments, load_producers(snapshots, segments), epochs, is_sealed)


@dataclass(frozen=True, slots=True)
class _Opener:
    disk: Disk
    directory: Path
    config: LogConfig
    now_ms: int

    def open_segments(self, start_offset: int) -> list[Segment]:
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
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=self.now_ms,
            is_active=is_active,
        )

    def _open_closed(self, base: int, next_base: int, names: set[str]) -> Segment:
        name = segment_name(base)
        has_indexes = {name + OFFSET_INDEX_SUFFIX, name + TIME_INDEX_SUFFIX} <= names
        segment = self._open(base, is_active=not has_indexes)
        if has_indexes and segment.offsets.is_whole and segment.times.is_whole:
            segment.end_offset, segment.largest = next_base, segment.times.last
            return segment
        logger.warning("%s: its index is missing or broken; rebuilt", segment.log.path)
        segment.offsets.clear()
        segment.times.clear()
        for position, header in segment.intact_batches():
            segment.note(position, header)
        segment.end_offset = next_base
        segment.seal()
        return segment

    def _remove_orphans(self, names: set[str]) -> None:
        """A crash while a segment was deleted can leave its indexes behind."""
        for name in names:
            match = INDEX_FILE.fullmatch(name)
            if match and match[1] + LOG_SUFFIX not in names:
                self.disk.remove(self.directory / name)


def is_as_closed(active: Segment) -> bool:
    """After a clean stop the indexes are complete: find the end from the last entry on."""
    if not (active.offsets.is_whole and active.times.is_whole):
        return False
    last = len(active.offsets) - 1
    start = active.offsets[last][1] if last >= 0 else 0
    active.largest = active.times.last
    try:
        for _, header in walk_batches(active.log, start, active.size_bytes, must_check=True):
            active.end_offset = header.last_offset + 1
    except BrokenAt as broken:
        logger.error("%s", active.damage(broken.position, broken.error))
        active.end_offset = active.base_offset
        return False
    return True


def recover_segment(disk: Disk, segment: Segment, *, synced_offset: int) -> bool:
    """Check every batch, rebuild the indexes, cut off a torn tail.

    True if the segment ends in damage to what was synced: nothing can be appended behind it.
    """
    segment.offsets.clear()
    segment.times.clear()
    segment.check_below = 0
    position = 0
    while True:
        try:
            _take_batches(segment, position)
            return False
        except BrokenAt as broken:
            found = find_batch(segment.log, broken.position + 1, offset_min=segment.end_offset)
            if segment.end_offset >= synced_offset:
                if found:
                    _keep_aside(disk, segment, broken.position)
                _cut_off(segment, broken)
                return False
            logger.error("%s", segment.damage(broken.position, broken.error))
            segment.check_below = segment.log.size
            if found is None:
                segment.end_offset = synced_offset
                return True
            position = found[0]


def _take_batches(segment: Segment, start: int) -> None:
    for position, header in walk_batches(segment.log, start, segment.log.size, must_check=True):
        if header.base_offset < segment.end_offset:
            reason = f"offset {header.base_offset} where {segment.end_offset} or more must follow"
            raise BrokenAt(position, CorruptBatch(reason))
        segment.note(position, header)


def _cut_off(segment: Segment, broken: BrokenAt) -> None:
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
    copy = disk.open(path)
    copy.overwrite(segment.log.read(position, segment.log.size - position))
    copy.close()
    logger.warning("%s: the bytes cut off hold intact batches; kept in %s", segment.log.path, path)


def _age_start(active: Segment, now_ms: int) -> int:
    """When the first record came in, as far as the file knows; else now."""
    try:
        for _, header in walk_batches(active.log, 0, active.size_bytes):
            return header.base_timestamp if 0 <= header.base_timestamp <= now_ms else now_ms
    except BrokenAt:
        pass
    return now_ms


def load_producers(snapshots: SnapshotFiles, segments: list[Segment]) -> ProducerStates:
    """The newest snapshot, and what the log says since."""
    newest = snapshots.load_newest(end_offset=segments[-1].end_offset)
    from_offset, producers = newest or (segments[0].base_offset, ProducerStates())
    for segment in segments:
        if segment.end_offset > from_offset:
            for _, header in segment.intact_batches(segment.offsets.position_for(from_offset)):
                if header.base_offset >= from_offset:
                    producers.note(header)
    return producers


def load_epochs(disk: Disk, directory: Path) -> LeaderEpochs:
    content = read_file(disk, directory / EPOCH_FILE)
    if content is None:
        return LeaderEpochs()
    try:
        return LeaderEpochs.from_text(content.decode())
    except (Corrupt, UnicodeDecodeError) as error:
        logger.error("%s: leader epochs start afresh: %s", directory / EPOCH_FILE, error)
        return LeaderEpochs()


def save_epochs(disk: Disk, directory: Path, epochs: LeaderEpochs) -> None:
    replace_file(disk, directory / EPOCH_FILE, epochs.to_text().encode())
