"""What the console says of jobs: the errors of their status, without the server's directories."""

from contextlib import closing
from pathlib import Path

from millstream import App
from millstream.base.clock import system_clock
from millstream.commands.console.shown_app import ShownApp
from millstream.processing.jobs.job_status import StatusFiles
from millstream.processing.jobs.progress import JobProgress


def test_of_a_jobs_code_the_file_and_line_are_shown_and_no_directory(tmp_path: Path) -> None:
    app = App("shop", data=tmp_path / "data", brokers="127.0.0.1:1")
    app.topic("clicks", schema="url STRING")
    app.view(key="url", name="counts")(lambda clicks: clicks)
    (tmp_path / "data" / "jobs" / "counts").mkdir(parents=True)
    failed = JobProgress(
        job="counts", state="failed", error=f"no price (at {tmp_path}/my shop/shop.py:53)"
    )
    StatusFiles(tmp_path / "data" / "jobs", system_clock).look([failed])
    with closing(ShownApp(app)) as shown:
        [job] = shown.declared.jobs()
    assert job.status is not None
    assert job.status.progress.error == "no price (at shop.py:53)"
    assert job.place.startswith("test_shown_app.py:")
