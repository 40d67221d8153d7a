"""A copy of what a stopped job has on disk, and the way back: its manifest, checkpoint and view.

    DIR/copy.json        whose copy, of which batch, and every file with its size and SHA-256
    DIR/manifest.json    the job's manifest
    DIR/checkpoint/...   Spark's files of the generation that was current
    DIR/view.sqlite      the job's view, if it has one

All of it is of one moment: who copies or restores holds the job's directory, so that no run of the
job changes it meanwhile. A copy that was broken off is not there: its directory gets its name last.
A restore that was broken off leaves a job without a manifest, which no run takes for its own:
restore again.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.base.disk import make_private_directories
from millstream.base.errors import Corrupt, MillstreamError, Rejected
from millstream.processing.jobs.checkpoints import MANIFEST, JobDirectory, Manifest, decode_manifest
from millstream.processing.state.state_archives import (
    SUFFIX,
    BadArchive,
    checked_entries,
    write_anew,
)
from millstream.processing.writing.batch_log import BatchLog

FORMAT = 1
COPY = "copy.json"
CHECKPOINT, VIEW = "checkpoint", "view.sqlite"
PARTIAL = ".partial"
CHUNK_BYTES = 1 << 20


class NothingToCopy(Rejected):
    def __init__(self, *, job: str, directory: Path) -> None:
        super().__init__(f"job {job} has no checkpoint in {directory}: it has never run there")
        self.job, self.directory = job, directory


class CopyExists(Rejected):
    def __init__(self, *, directory: Path) -> None:
        super().__init__(f"{directory} is there already: give a new directory")
        self.directory = directory


class NotACopy(Rejected):
    def __init__(self, *, directory: Path, problem: str) -> None:
        super().__init__(f"{directory} is not a copy of a job ({problem})")
        self.directory, self.problem = directory, problem


class DamagedCopy(Corrupt):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}. The copy cannot be used; nothing was restored")
        self.path, self.problem = path, problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCopy:
    """What a copy is of. `batch` is the last that was planned; -1 if there is none."""

    job: str
    generation: int
    batch: int
    made_ms: int
    files: Mapping[str, CopiedFile] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    @property
    def has_view(self) -> bool:
        return VIEW in self.files


# --- copy -------------------------------------------------------------------------------------


def copy_job(directory: JobDirectory, target: Path, *, view: Path | None, now_ms: int) -> JobCopy:
    """Copy the job's current generation; `view` is a file with its view at rest, or None."""
    manifest = directory.manifest()
    if manifest is None:
        raise NothingToCopy(job=directory.path.name, directory=directory.path)
    if target.exists():
        raise CopyExists(directory=target)
    partial = target.with_name(target.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    files = _copy_all(_files(directory, manifest, view), partial)
    made = JobCopy(
        job=manifest.job,
        generation=manifest.generation,
        batch=BatchLog(directory.checkpoint(manifest.generation)).last_batch(),
        made_ms=now_ms,
        files=files,
    )
    _write_synced(partial / COPY, encode_copy(made))
    os.replace(partial, target)
    return made


def _files(directory: JobDirectory, manifest: Manifest, view: Path | None) -> dict[str, Path]:
    """Every file by its name in the copy."""
    checkpoint = directory.checkpoint(manifest.generation)
    found = {MANIFEST: directory.path / MANIFEST}
    found |= {f"{CHECKPOINT}/{name}": checkpoint / name for name in _names_under(checkpoint)}
    return found | ({VIEW: view} if view is not None else {})


def _names_under(directory: Path) -> Iterator[str]:
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return (path.relative_to(directory).as_posix() for path in paths)


def _copy_all(files: Mapping[str, Path], target: Path) -> dict[str, CopiedFile]:
    return {name: _copy_file(source, target / name) for name, source in files.items()}


def _copy_file(source: Path, target: Path) -> CopiedFile:
    make_private_directories(target.parent)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reading, target.open("wb") as writing:
        while chunk := reading.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return CopiedFile(bytes=size, sha256=digest.hexdigest())


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


# --- restore ----------------------------------------------------------------------------------


def read_copy(source: Path) -> JobCopy:
    """What is in a copy, every file checked; nothing else is in it, and nothing is elsewhere."""
    found = _decoded(source)
    for name, file in found.files.items():
        _check_is_inside(source / name, source)
        _check_file(source / name, file)
    for name in _names_under(source / CHECKPOINT):
        if f"{CHECKPOINT}/{name}" not in found.files:
            path = source / CHECKPOINT / name
            raise DamagedCopy(path=path, problem=f"is not named in {COPY}")
        if name.endswith(SUFFIX):
            _check_archive(source / CHECKPOINT / name)
    return found


def _check_archive(path: Path) -> None:
    """Spark would put files wherever it says."""
    try:
        checked_entries(path)
    except BadArchive as error:
        raise DamagedCopy(path=path, problem=str(error)) from None


def _check_is_inside(path: Path, source: Path) -> None:
    """Not by a link, either: what it leads to would be put into the job's directory."""
    if path.is_symlink() or not path.resolve().is_relative_to(source.resolve()):
        raise DamagedCopy(path=path, problem="leads out of the copy")


def restore_job(
    source: Path, directory: JobDirectory, *, put_view: Callable[[], None] = lambda: None
) -> bool:
    """Put checkpoint, view and manifest back in place of what is there, in this order.

    Killed in between, the job has no manifest and does not start: it never goes on with an older
    view than its checkpoint. Its starts go on counting, as its epochs must.

    True if the job keeps the name by which its receipts know it. It gets a new one if it has no
    view in the copy and may have written more since: receipts of batches after the copy would make
    it leave out other rows. What it wrote into a topic since then, it writes again.
    """
    found = read_copy(source)
    manifest = decode_manifest((source / MANIFEST).read_bytes(), source / MANIFEST)
    if manifest.job != directory.path.name:
        problem = f"it is of job {manifest.job}, not of {directory.path.name}"
        raise NotACopy(directory=source, problem=problem)
    keeps_name = found.has_view or _is_where_it_was(source, directory)
    starts = max(manifest.starts, _starts_so_far(directory))
    (directory.path / MANIFEST).unlink(missing_ok=True)
    for old in directory.path.glob(f"{CHECKPOINT}-*"):
        shutil.rmtree(old)
    for mark in directory.path.glob("changes-*"):  # of later batches than the job goes on with
        mark.unlink()
    checkpoint = directory.checkpoint(manifest.generation)
    names = list(_names_under(source / CHECKPOINT))
    _copy_all({name: source / CHECKPOINT / name for name in names}, checkpoint)
    for name in names:
        if name.endswith(SUFFIX):
            write_anew(checkpoint / name)
    if not keeps_name:
        rename_query(checkpoint)
    put_view()
    directory.write(replace(manifest, starts=starts))
    return keeps_name


def _starts_so_far(directory: JobDirectory) -> int:
    """Of the job that is replaced; 0 if what is there says nothing, as after a broken restore."""
    try:
        found = directory.manifest()
    except MillstreamError:
        return 0
    return found.starts if found else 0


def rename_query(checkpoint: Path) -> None:
    """Give the checkpoint another name of Spark's: receipts of the old one say nothing of it."""
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        return
    facts = json.loads(metadata.read_text())
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)
    _write_synced(metadata, json.dumps(facts | {"id": str(uuid.uuid4())}).encode())


def _is_where_it_was(source: Path, directory: JobDirectory) -> bool:
    """Whether the job has planned nothing since the copy was made."""
    manifest = decode_manifest((source / MANIFEST).read_bytes(), source / MANIFEST)
    now, then = directory.checkpoint(manifest.generation), source / CHECKPOINT
    same_name = _bytes_of(now / "metadata") == _bytes_of(then / "metadata") is not None
    return same_name and BatchLog(now).last_batch() == BatchLog(then).last_batch()


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _check_file(path: Path, expected: CopiedFile) -> None:
    if not path.is_file():
        raise DamagedCopy(path=path, problem="is missing")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.sha256:
        raise DamagedCopy(path=path, problem="has changed since it was copied")


def encode_copy(made: JobCopy) -> bytes:
    return (json.dumps({"format": FORMAT} | asdict(made), indent=2) + "\n").encode()


def _decoded(source: Path) -> JobCopy:
    try:
        facts: dict[str, Any] = json.loads((source / COPY).read_bytes())
        if facts.pop("format") != FORMAT:
            raise NotACopy(directory=source, problem="of another version of Millstream")
        files = {str(name): CopiedFile(**file) for name, file in facts.pop("files").items()}
        return JobCopy(**facts, files=files)
    except FileNotFoundError:
        raise NotACopy(directory=source, problem=f"it has no {COPY}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"its {COPY} cannot be read: {type(error).__name__}: {error}"
        raise NotACopy(directory=source, problem=problem) from None
