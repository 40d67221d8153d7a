"""Keeps the generation before current while its view is rebuilt, so that readers see no old rows.

It runs with its own checkpoint and its own definition (`definition.py`), in a thread beside the run
of the new generation, which starts and ends it. Where it cannot run, readers see it as it was.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from millstream.base.ports import Positions
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.checkpoints import JobDirectory, Manifest
from millstream.processing.jobs.definition import decode_definition, with_store
from millstream.processing.jobs.job import Job, ToView
from millstream.processing.jobs.job_run import JobRun
from millstream.processing.jobs.prepared_job import PreparedJob, Surroundings, prepare
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.output import ViewHold


class FormerRun(JobRun):
    """The job as it was. Its directory is held by the run of the new generation."""

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, Declared],
        around: Surroundings,
        manifest: Manifest,
        hold: ViewHold,
    ) -> None:
        super().__init__(job, inputs, around, hold=hold)
        self._manifest = manifest

    @property
    def query_name(self) -> str:
        return f"{self.job.name}, generation {self._manifest.generation}"

    def run(self) -> None:
        self._run_again_and_again()

    def _prepare(self) -> PreparedJob:
        return prepare(self.job, self._inputs, self._around, former=self._manifest)

    def _begin(self, prepared: PreparedJob) -> Manifest:
        started = replace(self._manifest, starts=self._manifest.starts + 1)
        prepared.directory.keep_manifest(started)
        return started

    def _settle(self, *_: object, **__: object) -> bool:
        return True


class FormerGeneration:
    """Runs until it is ended; `checkpoint` says where it has read to."""

    def __init__(self, run: FormerRun, checkpoint: Path) -> None:
        self._run, self._checkpoint = run, checkpoint
        self._thread = threading.Thread(target=run.run, name=run.query_name, daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        return None if self._run.failure is None else str(self._run.failure)

    def end(self) -> Positions:
        """Stop it; where it has been planned to read to, which the new one must reach."""
        self._run.stop()
        self._thread.join()
        log = BatchLog(self._checkpoint)
        batch = log.last_batch()
        return log.positions(batch) if batch >= 0 else {}


def start_former(
    job: Job, manifest: Manifest, around: Surroundings, hold: ViewHold
) -> FormerGeneration | None:
    """None if there is none that readers see, or it cannot go on."""
    number = manifest.previous
    if number is None or not manifest.is_building or not isinstance(job.output, ToView):
        return None
    directory = JobDirectory(around.directory / job.name, job=job.name)
    kept = directory.kept_manifest(number)
    found = kept and decode_definition(directory.definition(number), code=kept.code)
    if kept is None or not found:
        return None
    if not (directory.has_begun(number) and around.is_served(job, number)):
        return None
    former, inputs = found
    run = FormerRun(with_store(former, job.output.store), inputs, around, kept, hold)
    return FormerGeneration(run, directory.checkpoint(number))
