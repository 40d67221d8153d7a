"""A job's rows computed anew, in one batch over its topics: what a run should have come to.

Reads up to given positions, writes nothing, sets nothing aside: values that cannot be decoded are
passed over, as the job did. Nothing is late in a batch: where a topic drops late events, these are
in its result, and were not in the job's.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.base.ports import Positions
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.job import Job
from millstream.processing.jobs.prepared_job import (
    by_used_columns,
    called,
    event_time_in,
    session_for,
)
from millstream.processing.reading.frames import Reading, batch_frame
from millstream.processing.session import make_active

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def recomputed(
    job: Job,
    inputs: Mapping[str, Declared],
    session: "SparkSession",
    reading: Reading,
    positions: Positions,
) -> "pa.Table":
    """The rows of the job's function over all records before these positions."""
    own = session_for(job, session)
    make_active(own)

    def call(reading: Reading) -> "DataFrame":
        frames = {
            parameter: batch_frame(own, declared, _reading_to(reading, declared.name, positions))
            for parameter, declared in inputs.items()
        }
        return called(job, frames, event_time_in(inputs.values()))

    return by_used_columns(call, inputs, reading).toArrow()


def _reading_to(reading: Reading, topic: str, positions: Positions) -> Reading:
    """A topic that the job has not read anything of yet is read to its end."""
    if topic not in positions:
        return replace(reading, checkpoint=None)
    ends = {topic: {str(number): offset for number, offset in positions[topic].items()}}
    return replace(reading, checkpoint=None, ending=json.dumps(ends), on_bad="skip")
