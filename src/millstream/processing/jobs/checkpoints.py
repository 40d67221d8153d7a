"""The directory of a job: its manifest, and one checkpoint for each generation.

    jobs/clicks_per_minute/
      manifest.json       whose checkpoints these are, their shape, what is frozen in them
      running.lock        held by the process that runs the job, or copies it; says which that is
      checkpoint-2/       Spark's: positions, commits, state
      definition-2.pickle the function that it was last started with, and its inputs
      uses-2.json         which events its operators can use, by source; written at each start
      status.json         how the job gets on, for other processes: see job_status.py
      changes-2.told      is there if the view's changes are also in a topic, for other jobs
      manifest-1.json     the generation before, as it was; with its checkpoint and definition

A rebuild is a new generation, which starts over. The one before goes on beside it until the new
one has caught up, and stays for a rollback. docs/formats/job_directory.md has the format.
Knows no Spark: what is inside of a checkpoint is not looked at.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.base.disk import (
    FileLock,
    RealDisk,
    make_private_directories,
    read_file,
    replace_file,
)
from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.processing.jobs.job_status import STATUS
from millstream.processing.jobs.plan_shape import PlanShape, from_json, to_json

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "running.lock"
RUNS = "runs already"
CHECKPOINT_PREFIX = "checkpoint-"
DEFINITION = "definition-{}.pickle"
KEPT_MANIFEST = "manifest-{}.json"
CHANGES = "changes-{}.told"
USES = "uses-{}.json"
RUN_BYTES = 4
FIRST_GENERATION = 1
# Spark takes these from the checkpoint, whatever the session says.
FROZEN_SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
)


class DamagedManifest(Corrupt):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} is not a job's manifest ({problem}). Bring it back from a copy, or remove "
            f"{path.parent} to start the job over"
        )
        self.path, self.problem = path, problem


class ForeignCheckpoint(Rejected):
    def __init__(self, *, job: str, directory: Path, owner: str) -> None:
        super().__init__(
            f"job {job}: {directory} is of {owner}. Give each job a directory of its own: rename "
            f"the job, or move {directory} away"
        )
        self.job, self.directory, self.owner = job, directory, owner


class NothingBefore(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(
            f"job {job} has no generation before this one to go back to: there is one after a "
            "rebuild, until the next"
        )
        self.job = job


class JobInUse(Retryable):
    def __init__(self, *, job: str, use: str) -> None:
        super().__init__(f"job {job} {use}: end that first, or wait for it")
        self.job, self.use = job, use


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a job's checkpoints are of. `run` names the generation for ever; `starts` counts.

    `previous` is the other generation that is kept: the one before, which readers still see while
    this one `is_building`; after a rollback the one after.
    """

    job: str
    generation: int
    run: str
    shape: PlanShape
    code: str
    previous: int | None = None
    is_building: bool = False
    starts: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


class JobDirectory:
    """Has one writer, who holds it: the driver that runs the job, or a command."""

    def __init__(self, path: Path, *, job: str) -> None:
        self.path = path
        self._job = job
        self._disk = RealDisk()

    @contextlib.contextmanager
    def held(self, use: str = RUNS) -> Iterator[None]:
        """Keep all others of this machine off; the system lets go when the process dies.

        A driver on another machine may not see it: the epoch of the output fences that one.
        """
        make_private_directories(self.path)
        lock = FileLock(self.path / LOCK)
        try:
            if not lock.take():
                raise JobInUse(job=self._job, use=lock.read_note().strip() or RUNS)
            lock.note(f"{use} in process {os.getpid()}\n")
            yield
        finally:
            lock.release()

    def checkpoint(self, generation: int) -> Path:
        return self.path / f"{CHECKPOINT_PREFIX}{generation}"

    def uses(self, generation: int) -> Path:
        return self.path / USES.format(generation)

    def write_uses(self, generation: int, content: bytes) -> None:
        """Before the query starts: its sources judge by it what is late."""
        if read_file(self._disk, self.uses(generation)) != content:
            replace_file(self._disk, self.uses(generation), content)

    def has_begun(self, generation: int) -> bool:
        """Whether a batch of it was planned: before that, nothing depends on its shape."""
        planned = self.checkpoint(generation) / "offsets"
        return planned.is_dir() and any(path.name.isdecimal() for path in planned.iterdir())

    def manifest(self) -> Manifest | None:
        """What is there; None for a job that never ran. Another job's is refused."""
        content = read_file(self._disk, self.path / MANIFEST)
        if content is None:
            self._require_no_checkpoints()
            return None
        found = decode_manifest(content, self.path / MANIFEST)
        if found.job != self._job:
            raise ForeignCheckpoint(job=self._job, directory=self.path, owner=f"job {found.job}")
        return found

    def _require_no_checkpoints(self) -> None:
        if any(self.path.glob(f"{CHECKPOINT_PREFIX}*")):
            owner = f"an unknown job: it has checkpoints, and no {MANIFEST}"
            raise ForeignCheckpoint(job=self._job, directory=self.path, owner=owner)

    def write(self, manifest: Manifest) -> None:
        make_private_directories(self.path)
        replace_file(self._disk, self.path / MANIFEST, encode_manifest(manifest))

    def served_generation(self) -> int:
        """The one that readers of the job's view see; the first if it has never run."""
        found = self.manifest()
        if found is None:
            return FIRST_GENERATION
        return found.previous if found.is_building and found.previous else found.generation

    def kept_manifest(self, generation: int) -> Manifest | None:
        """Of the other generation that is kept, as it was."""
        path = self.path / KEPT_MANIFEST.format(generation)
        content = read_file(self._disk, path)
        return None if content is None else decode_manifest(content, path)

    def keep_manifest(self, manifest: Manifest) -> None:
        path = self.path / KEPT_MANIFEST.format(manifest.generation)
        replace_file(self._disk, path, encode_manifest(manifest))

    def definition(self, generation: int) -> bytes | None:
        return read_file(self._disk, self.path / DEFINITION.format(generation))

    def write_definition(self, generation: int, content: bytes | None) -> None:
        """None: what it is started with cannot be kept, and an older one is not what it is."""
        path = self.path / DEFINITION.format(generation)
        if content is None:
            path.unlink(missing_ok=True)
        elif content != self.definition(generation):
            replace_file(self._disk, path, content)
            path.chmod(0o600)  # a function may hold a secret

    def changes_mark(self, generation: int) -> str | None:
        """What receipts of this generation's changes go by; None if they are in no topic.

        If there is one, all rows and changes of the view are in the topic, from its start on.
        """
        content = read_file(self._disk, self.path / CHANGES.format(generation))
        return None if content is None else content.decode()

    def mark_changes(self, generation: int, mark: str) -> None:
        replace_file(self._disk, self.path / CHANGES.format(generation), mark.encode())

    def begin(self, manifest: Manifest) -> None:
        """Start a generation; the one before is kept first, so that a kill loses neither."""
        old = self.manifest()
        if old is not None and old.generation == manifest.previous:
            self.keep_manifest(old)
        self.write(manifest)

    def settle(self, manifest: Manifest) -> Manifest:
        """The generation has caught up: of all others, only the one before it stays."""
        settled = replace(manifest, is_building=False)
        self.write(settled)
        for number in self._generations() - {manifest.generation, manifest.previous}:
            self._forget(number)
        return settled

    def roll_back(self) -> Manifest:
        """Make the generation before the current one again, and keep this one in its place."""
        current = self.manifest()
        number = current.previous if current is not None else None
        kept = self.kept_manifest(number) if number is not None else None
        if current is None or kept is None or not self.checkpoint(kept.generation).is_dir():
            raise NothingBefore(job=self._job)
        self.keep_manifest(current)
        # Epochs of functions go on counting.
        starts = max(current.starts, kept.starts)
        back = replace(kept, previous=current.generation, is_building=False, starts=starts)
        self.write(back)
        return back

    def forget(self) -> None:
        """Remove all that the job has; its lock stays, with who holds it."""
        for name in (MANIFEST, STATUS):
            (self.path / name).unlink(missing_ok=True)
        for number in self._generations():
            self._forget(number)

    def _generations(self) -> set[int]:
        names = {path.name for path in self.path.iterdir()}
        numbers = (re.fullmatch(r"\w+-(\d+)(\.\w+)?", name) for name in names)
        return {int(found[1]) for found in numbers if found}

    def _forget(self, generation: int) -> None:
        shutil.rmtree(self.checkpoint(generation), ignore_errors=True)
        for name in (DEFINITION, KEPT_MANIFEST, CHANGES, USES):
            (self.path / name.format(generation)).unlink(missing_ok=True)


def first_manifest(job: str, shape: PlanShape, code: str, settings: Mapping[str, str]) -> Manifest:
    return Manifest(
        job=job,
        generation=FIRST_GENERATION,
        run=new_run(FIRST_GENERATION),
        shape=shape,
        code=code,
        settings=dict(settings),
    )


def next_generation(
    old: Manifest, shape: PlanShape, code: str, settings: Mapping[str, str]
) -> Manifest:
    """A manifest that starts over. A generation that never caught up leaves nothing to keep."""
    number = max(old.generation, old.previous or 0) + 1
    return replace(
        old,
        generation=number,
        run=new_run(number),
        shape=shape,
        code=code,
        settings=dict(settings),
        previous=old.previous if old.is_building else old.generation,
        is_building=True,
    )


def new_run(generation: int) -> str:
    return f"{generation}-{secrets.token_hex(RUN_BYTES)}"


def frozen_differences(manifest: Manifest, settings: Mapping[str, str]) -> list[str]:
    """Settings of the session that the checkpoint overrules, in words."""
    return [
        f"{name} is {settings[name]}, and the checkpoint keeps {kept}"
        for name, kept in manifest.settings.items()
        if name in settings and settings[name] != kept
    ]


def encode_manifest(manifest: Manifest) -> bytes:
    facts = {
        "format": FORMAT,
        "job": manifest.job,
        "generation": manifest.generation,
        "previous": manifest.previous,
        "is_building": manifest.is_building,
        "run": manifest.run,
        "starts": manifest.starts,
        "code": manifest.code,
        "settings": dict(manifest.settings),
        "shape": to_json(manifest.shape),
    }
    return (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()


def decode_manifest(content: bytes, path: Path) -> Manifest:
    try:
        facts: dict[str, Any] = json.loads(content)
        if facts["format"] != FORMAT:
            problem = f"format {facts['format']}, this version reads {FORMAT}"
            raise DamagedManifest(path=path, problem=problem)
        return Manifest(
            job=str(facts["job"]),
            generation=int(facts["generation"]),
            previous=None if facts["previous"] is None else int(facts["previous"]),
            # Before there was a rollback, the one before was kept no longer than needed.
            is_building=bool(facts.get("is_building", facts["previous"] is not None)),
            run=str(facts["run"]),
            starts=int(facts["starts"]),
            code=str(facts["code"]),
            settings={str(name): str(value) for name, value in facts["settings"].items()},
            shape=from_json(facts["shape"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DamagedManifest(path=path, problem=problem) from None
