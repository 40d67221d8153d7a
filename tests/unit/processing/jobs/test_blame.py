"""The search for the record that a job failed on."""

from pathlib import Path
from typing import Any

from millstream.base.declared import DeclaredTopic
from millstream.processing.jobs.blame import blamed
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest
from millstream.processing.jobs.job import Job, ToView
from millstream.processing.jobs.job_failure import Failure
from millstream.processing.jobs.plan_shape import Comparison, PlanShape
from millstream.processing.jobs.prepared_job import PreparedJob
from millstream.processing.reading.frames import Reading

NO_FRAME: Any = None


def test_a_search_that_fails_leaves_the_failure_as_it_was(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path, job="counts")
    (directory.checkpoint(1) / "offsets").mkdir(parents=True)  # of no batch
    failure = Failure(reason="ValueError: no price", is_passing=False, of_application=True)
    assert blamed(failure, prepared(directory), {"clicks": DeclaredTopic(name="clicks")}) == failure


def prepared(directory: JobDirectory) -> PreparedJob:
    return PreparedJob(
        job=Job(name="counts", function=print, inputs={}, output=ToView(key=("url",))),
        frame=NO_FRAME,
        mode="append",
        manifest=first_manifest("counts", PlanShape(sources={}), "", {}),
        comparison=Comparison(verdict="new"),
        directory=directory,
        reading=Reading(brokers="127.0.0.1:1"),
    )
