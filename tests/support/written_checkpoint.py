"""The directory of a job as a run leaves it, as far as positions go: written by hand, no Spark."""

import json
from pathlib import Path

from millstream.base.ports import Positions
from millstream.processing.jobs.checkpoints import JobDirectory, first_manifest
from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.reading.offset_log import COMMITS, OFFSETS


def write_checkpoint(
    jobs: Path, job: str, positions: Positions, *, batch: int = 0, is_done: bool = True
) -> None:
    """`batch` was planned, and is done or not."""
    directory = JobDirectory(jobs / job, job=job)
    manifest = directory.manifest()
    if manifest is None:
        manifest = first_manifest(job, PlanShape(sources={}), "", {})
        directory.write(manifest)
    checkpoint = directory.checkpoint(manifest.generation)
    for folder in (OFFSETS, COMMITS):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    end = {
        topic: {"offsets": {str(number): offset for number, offset in offsets.items()}}
        for topic, offsets in positions.items()
    }
    lines = ["v1", '{"batchWatermarkMs":0}', json.dumps(end)]
    (checkpoint / OFFSETS / str(batch)).write_text("\n".join(lines))
    if is_done:
        (checkpoint / COMMITS / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
