"""Names the record that a job's code failed on: runs the job again over parts of the failed batch.

Only for what the application's code raised in Spark's workers. Runs on static frames, writes
nothing; gives up after some tries, and when the failure does not come again.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from millstream.base.offsets import OffsetRange
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.failing_record import Ranges, find_failing
from millstream.processing.jobs.job_failure import Failure, failure_in
from millstream.processing.jobs.prepared_job import PreparedJob, called, event_time_in
from millstream.processing.reading.frames import topic_read
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics
from millstream.processing.writing.batch_log import BatchLog

# Halving a million records takes 20 tries for each half.
TRIES_MAX = 24
VALUE_LENGTH_SHOWN = 200


def blamed(failure: Failure, prepared: PreparedJob, inputs: Mapping[str, Declared]) -> Failure:
    """The failure with its record, if one can be found."""
    if not failure.of_application:
        return failure
    try:
        record = _Search(failure, prepared, inputs).record()
    except Exception:  # it could not be looked for: the failure itself counts
        return failure
    return failure if record is None else replace(failure, record=record)


class _Search:
    def __init__(
        self, failure: Failure, prepared: PreparedJob, inputs: Mapping[str, Declared]
    ) -> None:
        self._failure, self._prepared, self._inputs = failure, prepared, inputs
        self._reads = {
            parameter: replace(
                topic_read(declared, replace(prepared.reading, checkpoint=None)), on_bad="fail"
            )
            for parameter, declared in inputs.items()
        }
        self._ends = {
            parameter: _ends(prepared.checkpoint, declared.name)
            for parameter, declared in inputs.items()
        }
        self._whole = {
            parameter: _batch_ranges(prepared.checkpoint, declared.name)
            for parameter, declared in inputs.items()
        }

    def record(self) -> str | None:
        for parameter, ranges in self._whole.items():
            fails = partial(self._fails, parameter)
            found = find_failing(ranges, fails, tries_max=TRIES_MAX)
            if found is not None:
                return self._shown(self._reads[parameter], *found)
        return None

    def _fails(self, parameter: str, ranges: Ranges) -> bool:
        chosen = self._whole | {parameter: list(ranges)}
        frames = {name: self._frame(name, part) for name, part in chosen.items()}
        try:
            frame = called(self._prepared.job, frames, event_time_in(self._inputs.values()))
            frame.write.format("noop").mode("overwrite").save()
        except Exception as error:  # Spark's types vary
            return failure_in(str(error)).reason == self._failure.reason
        return False

    def _frame(self, parameter: str, ranges: Ranges) -> DataFrame:
        """The records of these ranges; of a partition that has none here, none."""
        ends = self._ends[parameter]
        read = replace(
            self._reads[parameter],
            starting=_offsets_text(ends | {part: within.start for part, within in ranges}),
            ending=_offsets_text(ends | {part: within.end for part, within in ranges}),
        )
        return read_topics(self._prepared.frame.sparkSession, read)

    def _shown(self, read: TopicRead, part: Partition, offset: int) -> str:
        within = OffsetRange(start=offset, end=offset + 1)
        values = [
            record.value() for records in RangeReader(read).read(part, within) for record in records
        ]
        text = (values[0] or b"").decode("utf-8", "backslashreplace") if values else ""
        if len(text) > VALUE_LENGTH_SHOWN:
            text = text[: VALUE_LENGTH_SHOWN - 1] + "…"
        return f"{part} offset {offset}: {text}"


def _ends(checkpoint: Path, topic: str) -> dict[Partition, int]:
    """Where the last batch of a checkpoint was to read to, in every partition."""
    log = BatchLog(checkpoint)
    found = log.positions(log.last_batch()).get(topic, {})
    return {Partition(topic, number): end for number, end in sorted(found.items())}


def _batch_ranges(checkpoint: Path, topic: str) -> list[tuple[Partition, OffsetRange]]:
    log = BatchLog(checkpoint)
    batch = log.last_batch()
    before = log.positions(batch - 1).get(topic, {}) if batch else {}
    found = [
        (part, OffsetRange(start=before.get(part.number, 0), end=end))
        for part, end in _ends(checkpoint, topic).items()
    ]
    return [(part, within) for part, within in found if within]


def _offsets_text(offsets: Mapping[Partition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for part, offset in offsets.items():
        found.setdefault(part.topic, {})[str(part.number)] = offset
    return json.dumps(found)
