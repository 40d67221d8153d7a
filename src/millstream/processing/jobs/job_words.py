"""How a job is, in a sentence: for who waits for its view, in this process or another. Pure."""

from dataclasses import replace

from millstream.base.quantity import SECOND_MS, format_duration_roughly
from millstream.processing.jobs.job_status import JobStatus
from millstream.processing.jobs.progress import JobProgress

RUN = "`millstream run`"


def sentence(status: JobStatus | None, *, jobs: str, now_ms: int, host: str) -> str:
    """`jobs`: the directory that a run of this app on this machine keeps its jobs in."""
    if status is None:
        return (
            f"Nobody has run its job on this machine ({jobs}): {RUN} starts it; of a run on "
            "another machine nothing is known here"
        )
    if host and status.host and status.host != host:
        where = f" (process {status.process} on {status.host})"
    else:
        where = f" (process {status.process})" if status.process else ""
    progress, since_ms = status.progress, max(0, now_ms - status.since_ms)
    lasted = format_duration_roughly(since_ms // SECOND_MS * SECOND_MS)
    if status.is_stale(now_ms=now_ms):
        silent = format_duration_roughly(max(0, now_ms - status.at_ms))
        return f"Its job does not run: it was last heard of {silent} ago{where}; {RUN} starts it"
    match progress.state:
        case "failed":
            return f"Its job has failed{where}: {progress.error}"
        case "stopped" | "done":
            return f"Its job does not run: it was {progress.state} {lasted} ago; {RUN} continues it"
        case "waiting":
            return f"Its job tries again{where}, after: {progress.error}"
        case "starting":
            stage = f" ({progress.stage})" if progress.stage else ""
            return f"Its job has been starting for {lasted}{stage}{where}"
    return f"Its job runs{where}{_running(progress, lasted)}"


def _running(progress: JobProgress, lasted: str) -> str:
    if progress.busy_ms:
        which = "its first batch" if progress.batch is None else "the present batch"
        return f"; {which} has taken {format_duration_roughly(progress.busy_ms)} so far"
    if progress.batch is None:
        return f", for {lasted}, and has found nothing to do yet"
    took = format_duration_roughly(progress.batch_ms or 0)
    left = progress.lag_total
    behind = "" if left is None else ", caught up" if left == 0 else f", {left:,} records to read"
    return f"; its last batch took {took}{behind}"


def newest(status: JobStatus | None, found: JobProgress | None, *, now_ms: int) -> JobStatus | None:
    """What this process knows of a job that it runs is newer than the file."""
    if found is None:
        return status
    if status is None:
        return JobStatus(progress=found, at_ms=now_ms, since_ms=now_ms)
    since_ms = status.since_ms if status.progress.state == found.state else now_ms
    return replace(status, progress=found, at_ms=now_ms, since_ms=since_ms)
