"""The directory of a job: its manifest, and one checkpoint for each generation.

    jobs/clicks_per_minute/
      manifest.json       whose checkpoints these are, their shape, what is frozen in them
      running.lock        held by the process that runs the job, or copies it; says which that is
      checkpoint-2/       Spark's: positions, commits, state
      checkpoint-1/       the generation before, until the new one has caught up

A rebuild is a new generation, which starts over. docs/formats/job_directory.md has the format.
Knows no Spark: what is inside of a checkpoint is not looked at.
"""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.base.disk import FileLock, RealDisk, read_file, replace_file
from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.processing.jobs.plan_shape import PlanShape, from_json, to_json

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "running.lock"
RUNS = "runs already"
CHECKPOINT_PREFIX = "checkpoint-"
RUN_BYTES = 4
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


class JobInUse(Retryable):
    def __init__(self, *, job: str, use: str) -> None:
        super().__init__(f"job {job} {use}: end that first, or wait for it")
        self.job, self.use = job, use


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a job's checkpoints are of. `run` names the generation for ever; `starts` counts.

    `previous` is the generation before, as long as it is kept.
    """

    job: str
    generation: int
    run: str
    shape: PlanShape
    code: str
    previous: int | None = None
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
        self.path.mkdir(parents=True, exist_ok=True)
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
        self.path.mkdir(parents=True, exist_ok=True)
        replace_file(self._disk, self.path / MANIFEST, encode_manifest(manifest))

    def forget_previous(self, manifest: Manifest) -> Manifest:
        """Remove every generation but the current one; the manifest goes first."""
        alone = replace(manifest, previous=None)
        self.write(alone)
        for old in self.path.glob(f"{CHECKPOINT_PREFIX}*"):
            if old != self.checkpoint(manifest.generation):
                shutil.rmtree(old, ignore_errors=True)
        return alone


def first_manifest(job: str, shape: PlanShape, code: str, settings: Mapping[str, str]) -> Manifest:
    return Manifest(
        job=job, generation=1, run=new_run(1), shape=shape, code=code, settings=dict(settings)
    )


def next_generation(
    old: Manifest, shape: PlanShape, code: str, settings: Mapping[str, str]
) -> Manifest:
    """A manifest that starts over. A generation that never caught up leaves nothing to keep."""
    number = old.generation + 1
    return replace(
        old,
        generation=number,
        run=new_run(number),
        shape=shape,
        code=code,
        settings=dict(settings),
        previous=old.generation,
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
            run=str(facts["run"]),
            starts=int(facts["starts"]),
            code=str(facts["code"]),
            settings={str(name): str(value) for name, value in facts["settings"].items()},
            shape=from_json(facts["shape"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise DamagedManifest(path=path, problem=problem) from None
