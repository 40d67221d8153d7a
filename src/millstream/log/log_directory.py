"""The data directory: who owns it, what format it has, and the partition logs in it.

    millstream.lock                     held by the owner; says which process that is
    millstream.json                     format version, cluster id, epoch of the owner
    .kafka_cleanshutdown                there if the last owner closed everything
    recovery-point-offset-checkpoint    per partition: what is known to be synced
    log-start-offset-checkpoint         per partition: first offset, where records were deleted
    cleaner-offset-checkpoint           per partition: up to where it was compacted
    *.checked                           a second copy of these, with a checksum (checked_files.py)
    reserve                             space that is freed when the disk is full
    <topic>-<partition>/                one partition log each, in Kafka's layout

One process owns a directory at a time. Each owner has a higher epoch than all before it; it is
the leader epoch of what it writes, and an owner that finds a higher one stops.
"""

import base64
import json
import logging
import os
import re
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from millstream.base.disk import (
    Disk,
    DiskFull,
    FileLock,
    RealDisk,
    Unwritable,
    replace_file,
    write_file,
)
from millstream.base.errors import Corrupt, MillstreamError, Rejected
from millstream.log.checked_files import load_checked, save_checked
from millstream.log.config import LogConfig
from millstream.log.disk_space import DiskSpace
from millstream.log.partition_log import PartitionLog
from millstream.log.segment import LOG_SUFFIX

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
# Credentials and everybody's records are in it: others of this machine have no business there.
DIRECTORY_MODE = 0o700
META_FILE = "millstream.json"
LOCK_FILE = "millstream.lock"
CLEAN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANED_OFFSETS_FILE = "cleaner-offset-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
RESERVE_FILE = "reserve"
RESERVE_BYTES = 1 << 20
RESERVE_MARGIN = 16  # the reserve is made only while this many times its size are free
# A deleted partition: `<topic>-<partition>.<32 hex digits>-delete`, the front cut where the whole
# would be longer than a file system allows (255).
DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")
DELETED_FRONT_LENGTH_MAX = 200
PARTITION_DIRECTORY = re.compile(r"(.+)-(\d+)")

# Each log that was written to takes several syncs at the stop; those of different files overlap.
CLOSE_THREADS = 8
CLOSED_IN_THREADS_MIN = 32

Partition: TypeAlias = tuple[str, int]


class DirectoryLocked(Rejected):
    def __init__(self, *, path: Path, owner: str) -> None:
        super().__init__(
            f"{path}: in use by another broker ({owner or 'unknown process'}); stop it first, or "
            "choose another directory"
        )
        self.path, self.owner = path, owner


class FormatTooNew(Rejected):
    def __init__(self, *, path: Path, found: int) -> None:
        super().__init__(
            f"{path}: written in format {found}, this version knows up to {FORMAT_VERSION}; "
            "install a newer millstream, nothing was changed"
        )
        self.path, self.found = path, found


class OwnershipLost(Corrupt):
    def __init__(self, *, path: Path, epoch: int, found: int) -> None:
        super().__init__(
            f"{path}: epoch {epoch} owned it, but {found} has taken over; this broker stops "
            "before both write to the same files"
        )
        self.path, self.epoch, self.found = path, epoch, found


def owner_of(path: Path) -> str:
    """The process that has the directory now; empty if none has."""
    if not (path / LOCK_FILE).exists():
        return ""
    lock = FileLock(path / LOCK_FILE)
    try:
        return "" if lock.take() else lock.read_note().strip() or "unknown process"
    finally:
        lock.release()


class LogDirectory:
    """The owner's view of a data directory. Close it to leave a clean one behind."""

    def __init__(self, path: Path, *, disk: Disk | None = None) -> None:
        self.path = path
        self.disk = disk or RealDisk()
        self.space = DiskSpace(str(path))
        self.logs: dict[Partition, PartitionLog] = {}
        self._has_new_names = False
        self._lock = self._take_lock(path)
        try:
            self.cluster_id, self.epoch = self._take_over()
            self._was_closed_cleanly = self._take_clean_mark()
            # There is data, and its last owner did not say that all of it is complete.
            self.must_recover = not self._was_closed_cleanly and bool(self.partitions_on_disk())
            self._start_offsets = self._load_offsets(START_OFFSETS_FILE)
            self._synced_offsets = self._load_offsets(RECOVERY_POINTS_FILE)
            self._cleaned_offsets = self._load_offsets(CLEANED_OFFSETS_FILE)
            self._remove_deleted_directories()
        except BaseException:
            self._lock.release()
            raise

    # --- ownership ----------------------------------------------------------------------------

    def _take_lock(self, path: Path) -> FileLock:
        if isinstance(self.disk, RealDisk):
            try:
                path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            except FileExistsError as error:
                raise Unwritable(path=path, reason="a file is there, not a directory") from error
            except OSError as error:
                raise Unwritable(path=path, reason=os.strerror(error.errno or 0)) from error
        lock = FileLock(path / LOCK_FILE)
        if not lock.take():
            owner = lock.read_note().strip()
            lock.release()
            raise DirectoryLocked(path=path, owner=owner)
        lock.note(f"process {os.getpid()}\n")
        return lock

    def _take_over(self) -> tuple[str, int]:
        found = self._read_meta()
        cluster_id = str(found.get("cluster_id") or new_id())
        epoch = int(str(found.get("epoch", -1))) + 1
        self._write_meta(cluster_id, epoch)
        return cluster_id, epoch

    def _read_meta(self) -> dict[str, object]:
        content = load_checked(self.disk, self.path / META_FILE)
        if content is None:
            return {}
        try:
            meta = json.loads(content)
            version = int(meta["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self.path / META_FILE}: cannot be read ({error})") from error
        if version > FORMAT_VERSION:
            raise FormatTooNew(path=self.path, found=version)
        return dict(meta)

    def _write_meta(self, cluster_id: str, epoch: int) -> None:
        meta = {"format": FORMAT_VERSION, "cluster_id": cluster_id, "epoch": epoch}
        save_checked(self.disk, self.path / META_FILE, json.dumps(meta, indent=1).encode())

    def _take_clean_mark(self) -> bool:
        """Whether the last owner closed everything; said once, then the mark is gone."""
        clean = self.path / CLEAN_FILE
        if not self.disk.exists(clean):
            return False
        self.disk.remove(clean)
        self.disk.sync_directory(self.path)
        return True

    def check_ownership(self) -> None:
        """Raise OwnershipLost if another process has taken the directory over."""
        found = int(str(self._read_meta().get("epoch", -1)))
        if found != self.epoch:
            raise OwnershipLost(path=self.path, epoch=self.epoch, found=found)

    # --- partitions ---------------------------------------------------------------------------

    def directory_of(self, partition: Partition) -> Path:
        topic, number = partition
        return self.path / f"{topic}-{number}"

    def partitions_on_disk(self) -> list[Partition]:
        """Every partition that has a directory, opened or not."""
        found = []
        for name in self.disk.names(self.path):
            match = PARTITION_DIRECTORY.fullmatch(name)
            if match and not DELETED_DIRECTORY.fullmatch(name):
                found.append((match[1], int(match[2])))
        return sorted(found)

    def has(self, partition: Partition) -> bool:
        """Whether the partition has a directory, opened or not."""
        return self.disk.exists(self.directory_of(partition))

    def open_partition(
        self,
        partition: Partition,
        config: LogConfig,
        *,
        topic_id: bytes,
        now_ms: int,
        must_sync_name: bool = True,
    ) -> PartitionLog:
        """Open a partition's log, recovering it if need be; create it if it is new.

        Without `must_sync_name` the caller calls `sync_names` before anything is written to it.
        """
        directory = self.directory_of(partition)
        if not self.disk.exists(directory / PARTITION_METADATA_FILE):
            self._create_partition(directory, topic_id)
            if must_sync_name:
                self.sync_names()
        log = PartitionLog(
            self.disk,
            directory,
            config,
            leader_epoch=self.epoch,
            now_ms=now_ms,
            start_offset=self._start_offsets.get(partition, 0),
            synced_offset=self._synced_offsets.get(partition, 0),
            was_closed_cleanly=self._was_closed_cleanly,
            when_full=self.space.note_refusal,
        )
        self.logs[partition] = log
        return log

    def _create_partition(self, directory: Path, topic_id: bytes) -> None:
        """Its log makes the names in it durable, `sync_names` its own."""
        self._has_new_names = True
        self.disk.make_directory(directory)
        text = f"version: 0\ntopic_id: {id_to_text(topic_id)}"
        write_file(self.disk, directory / PARTITION_METADATA_FILE, text.encode())

    def sync_names(self) -> None:
        """Make the names of new partitions durable."""
        if self._has_new_names:
            self.disk.sync_directory(self.path)
            self._has_new_names = False

    def delete_records(self, partition: Partition, before_offset: int) -> None:
        """Hide the records below `before_offset`, durably, and free their segments."""
        log = self.logs[partition]
        if before_offset > log.start_offset:
            if before_offset <= log.high_watermark:
                if before_offset > log.synced_offset:  # a power cut must not leave start > end
                    log.sync(now_ms=log.synced_at_ms)
                self._start_offsets[partition] = before_offset
                self._save_offsets(START_OFFSETS_FILE, self._start_offsets)
            log.advance_start(before_offset)

    def delete_partition(self, partition: Partition) -> None:
        """Remove a partition: first its name, so that a crash cannot bring half of it back.

        Call `forget_offsets` once for all that were deleted.

        Its files are not closed here: a thread may still read one. The last reader closes it.
        """
        log = self.logs.pop(partition, None)
        if log is not None:
            log.retire()
        directory = self.directory_of(partition)
        if self.disk.exists(directory):
            front = directory.name[:DELETED_FRONT_LENGTH_MAX]
            doomed = directory.with_name(f"{front}.{uuid.uuid4().hex}-delete")
            self.disk.rename(directory, doomed)
            self.disk.sync_directory(self.path)
            self._remove_directory(doomed)

    def forget_offsets(self, topic: str) -> None:
        """A new topic of the same name must not start with the deleted one's offsets."""
        for name, offsets in (
            (START_OFFSETS_FILE, self._start_offsets),
            (RECOVERY_POINTS_FILE, self._synced_offsets),
            (CLEANED_OFFSETS_FILE, self._cleaned_offsets),
        ):
            doomed = [key for key in offsets if key[0] == topic and key not in self.logs]
            for key in doomed:
                del offsets[key]
            if doomed:
                self._save_offsets(name, offsets)

    def remove_if_empty(self, partition: Partition) -> bool:
        """Remove the directory of a partition that was never opened, if it holds no record."""
        directory = self.directory_of(partition)
        for name in self.disk.names(directory):
            if name.endswith(LOG_SUFFIX):
                file = self.disk.open(directory / name)
                is_empty = file.size == 0
                file.close()
                if not is_empty:
                    return False
        self._remove_directory(directory)
        return True

    def _remove_deleted_directories(self) -> None:
        for name in self.disk.names(self.path):
            if DELETED_DIRECTORY.fullmatch(name):
                self._remove_directory(self.path / name)

    def _remove_directory(self, directory: Path) -> None:
        for name in self.disk.names(directory):
            self.disk.remove(directory / name)
        self.disk.remove_directory(directory)

    # --- a reserve for a full disk -------------------------------------------------------------

    def keep_reserve(self) -> None:
        """Hold some space, so that deleting, which writes a little, works on a full disk too."""
        path = self.path / RESERVE_FILE
        if (
            self.disk.exists(path)
            or self.disk.free_bytes(self.path) < RESERVE_MARGIN * RESERVE_BYTES
        ):
            return
        file = self.disk.open(path)
        try:
            file.append([bytes(RESERVE_BYTES)])
            file.sync()
        except DiskFull:
            self.disk.remove(path)
        finally:
            file.close()

    def release_reserve(self) -> None:
        path = self.path / RESERVE_FILE
        if self.disk.exists(path):
            self.disk.remove(path)

    def look_at_space(self, *, now_ms: int) -> str | None:
        """Judge whether the disk has room; returns a line for the diagnostics when one is due."""
        return self.space.look(self.disk.free_bytes(self.path), now_ms=now_ms)

    @property
    def read_only(self) -> list[PartitionLog]:
        """The logs that take no more records since a write or sync failed."""
        return [log for log in self.logs.values() if log.failure is not None]

    @property
    def damaged(self) -> list[PartitionLog]:
        """The logs of which some records cannot be served."""
        return [log for log in self.logs.values() if log.is_damaged]

    # --- checkpoints --------------------------------------------------------------------------

    def save_recovery_points(self) -> None:
        """Note what is synced, so that recovery can tell damage from an unfinished write."""
        opened = {partition: log.synced_offset for partition, log in self.logs.items()}
        synced = {**self._synced_offsets, **opened}
        if synced != self._synced_offsets:
            self._synced_offsets = synced
            self._save_offsets(RECOVERY_POINTS_FILE, synced)

    def cleaned_offset(self, partition: Partition) -> int:
        """Up to where a log was compacted, as far as is known."""
        return self._cleaned_offsets.get(partition, 0)

    def save_cleaned_offset(self, partition: Partition, offset: int) -> None:
        self._cleaned_offsets[partition] = offset
        self._save_offsets(CLEANED_OFFSETS_FILE, self._cleaned_offsets)

    def _load_offsets(self, name: str) -> dict[Partition, int]:
        content = load_checked(self.disk, self.path / name)
        try:
            offsets = offsets_from_text((content or b"").decode())
        except (Corrupt, UnicodeDecodeError) as error:
            logger.error("%s: not used: %s", self.path / name, error)
            return {}
        there = set(self.partitions_on_disk())  # a crash may have come before `forget_offsets`
        return {partition: offset for partition, offset in offsets.items() if partition in there}

    def _save_offsets(self, name: str, offsets: Mapping[Partition, int]) -> None:
        save_checked(self.disk, self.path / name, offsets_to_text(offsets).encode())

    # --- close --------------------------------------------------------------------------------

    def close(self, *, now_ms: int) -> bool:
        """Close every log; True if all are complete on disk: the next start can trust them.

        If another owner has taken over, nothing is written.
        """
        try:
            self.check_ownership()
        except MillstreamError as error:
            logger.error("%s", error)
            self.abandon()
            return False
        is_clean = self._close_logs(now_ms) and set(self.partitions_on_disk()) <= self.logs.keys()
        try:
            if is_clean:
                self.save_recovery_points()
                replace_file(self.disk, self.path / CLEAN_FILE, b'{"version":0}\n')
        except MillstreamError as error:
            logger.error("%s: could not be closed cleanly: %s", self.path, error)
            is_clean = False
        self._lock.release()
        return is_clean

    def _close_logs(self, now_ms: int) -> bool:
        changed = [log for log in self.logs.values() if not log.is_saved]
        for log in self.logs.values():
            if log.is_saved:
                log.close(now_ms=now_ms)
        if len(changed) < CLOSED_IN_THREADS_MIN:
            closed = [log.close(now_ms=now_ms) for log in changed]  # all, also behind a failure
        else:
            with ThreadPoolExecutor(CLOSE_THREADS, thread_name_prefix="close") as threads:
                closed = list(threads.map(lambda log: log.close(now_ms=now_ms), changed))
        return all(closed)

    def abandon(self) -> None:
        """Let go of the directory and write nothing: it belongs to another owner, or is broken."""
        self._lock.release()


# A checkpoint file, text, in Kafka's format: a version line "0", a line with the number of
# entries, then "topic partition offset" per line.
CHECKPOINT_VERSION = "0"


def offsets_to_text(offsets: Mapping[Partition, int]) -> str:
    rows = [f"{topic} {number} {offset}" for (topic, number), offset in sorted(offsets.items())]
    return "\n".join([CHECKPOINT_VERSION, str(len(rows)), *rows]) + "\n"


def offsets_from_text(text: str) -> dict[Partition, int]:
    if not text:
        return {}
    try:
        _version, _count, *rows = text.split("\n")[:-1]
        offsets = {
            (topic, int(number)): int(offset)
            for topic, number, offset in (row.split(" ") for row in rows)
        }
    except ValueError as error:
        raise Corrupt(f"not a list of offsets ({error})") from error
    # Written back it must be the same, but for the order of the rows: Kafka does not sort them.
    if sorted(offsets_to_text(offsets).split("\n")) != sorted(text.split("\n")):
        raise Corrupt("not a list of offsets, or not in this version")
    return offsets


def new_id() -> str:
    return id_to_text(uuid.uuid4().bytes)


def id_to_text(identity: bytes) -> str:
    """Kafka writes its UUIDs in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()
