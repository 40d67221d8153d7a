"""The run of a job, as far as it goes without Spark."""

from pathlib import Path
from typing import Any

from millstream.processing.jobs.job import Job, ToView
from millstream.processing.jobs.job_run import JobRun
from millstream.processing.jobs.prepared_job import Surroundings

NOTHING: Any = None


def test_a_job_whose_directory_cannot_be_made_has_failed(tmp_path: Path) -> None:
    in_the_way = tmp_path / "jobs"
    in_the_way.touch()
    around = Surroundings(
        app="shop", session=NOTHING, brokers="127.0.0.1:1", directory=in_the_way, open_view=NOTHING
    )
    job = Job(name="counts", function=print, inputs={}, output=ToView(key=("url",)))
    run = JobRun(job, {}, around)
    run.run()
    assert run.progress.state == "failed"
    assert "Not a directory" in str(run.failure)
