"""A script of steps: what happens to the inputs of a job, and what its output must be then.

    steps.add("clicks", {"url": "/a", "at": "12:00:01"})
    steps.run()
    steps.expect([{"url": "/a", "clicks": 1}])

The records go through topics of a real broker, under names of their own, and the job runs in real
Spark, from its checkpoint, up to the end of what is there. Only the output is kept in memory. Time
moves by `advance` alone: no source of a script is ever idle. Knows nothing of pytest.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millstream.base.changes import CHANGE, UPSERT
from millstream.base.errors import MillstreamError, Rejected
from millstream.base.schema import Field, Scalar, Struct
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.job import Job, ToTopic, ToView
from millstream.processing.jobs.job_failure import Failure, failure_from
from millstream.processing.jobs.plan_reader import output_mode, read_plan
from millstream.processing.jobs.plan_uses import uses_of
from millstream.processing.jobs.prepared_job import call_function, called, session_for
from millstream.processing.reading.event_time import event_time_of
from millstream.processing.reading.frames import Reading, batch_frame
from millstream.processing.reading.last_use import encode_uses
from millstream.processing.steps.difference import difference
from millstream.processing.steps.gated_source import GatedSource
from millstream.processing.steps.inputs import (
    Added,
    Record,
    ScriptInput,
    clock_record,
    make_inputs,
    reasons_set_aside,
    remove_inputs,
    send,
)
from millstream.processing.steps.moments import with_moments
from millstream.processing.steps.query import CRASH_POINTS, CrashPoint, StepQuery, rows_of
from millstream.processing.steps.results import Results, Row, row_of
from millstream.schemas.spark_json import schema_from_spark_json

Turn = list[Added]
REASONS_MAX = 3


class BadStep(Rejected):
    """A step that says nothing, or that comes at the wrong time."""


class NotAsExpected(AssertionError):
    """The output of a job is not what its script says; the message shows the difference."""


class JobFailed(Rejected):
    """A job of a script failed: why, in a sentence. `failure` has more."""

    def __init__(self, *, job: str, failure: Failure) -> None:
        super().__init__(f"{job} failed: {failure}")
        self.job, self.failure = job, failure


@contextlib.contextmanager
def in_plain_words(job: str) -> Iterator[None]:
    """What Spark raises becomes one sentence: no stack of Java's comes before it."""
    try:
        yield
    except MillstreamError as error:
        raise error from None
    except PySparkException as error:
        raise JobFailed(job=job, failure=failure_from(error)) from None


class StepScript:
    """One job, its inputs, its checkpoint and its output so far."""

    def __init__(
        self,
        session: SparkSession,
        brokers: str,
        job: Job,
        inputs: Mapping[str, Declared],
        directory: Path,
    ) -> None:
        """`inputs` by parameter of the job's function."""
        self.job = job
        self._session = script_session(job, session)
        self._brokers = brokers
        self._directory = directory
        # One topic for all parameters that name it: what is added comes to each of them.
        topics = {declared.name: ScriptInput(declared) for declared in inputs.values()}
        self._inputs = {name: topics[declared.name] for name, declared in inputs.items()}
        self._topics = list(topics.values())
        self._results = Results(key_of(job))
        self._query: StepQuery | None = None
        self._columns: Struct | None = None
        self._turns: list[Turn] = []
        self._is_advanced = False
        self._time_ms = 0
        self._must_repeat = False
        self._seen_changes = 0
        make_inputs(brokers, self._topics)

    def add(self, topic: str, *rows: Any) -> None:
        """Rows that come into a topic or table with the next run, in this order."""
        to = self._input(topic)
        self._put(to, [to.record(row) for row in rows])

    def delete(self, table: str, *keys: Mapping[str, Any]) -> None:
        """Rows that go from a table with the next run, by their key columns."""
        to = self._input(table)
        self._put(to, [to.tombstone(key) for key in keys])

    def advance(self, topic: str, late_up_to: str | datetime) -> None:
        """Move the topic's watermark to that moment: windows that end by then are over.

        The moment may be years after the wall clock: a script has a time of its own.
        """
        to = self._input(topic)
        clock_ms = to.clock_ms(late_up_to)
        self._time_ms = max(self._time_ms, clock_ms)
        self._put(to, [clock_record(clock_ms)], is_clock=True)

    def run(self) -> None:
        """Process all that was added; what is added after an `advance`, in a batch after it."""
        for query in self._pending():
            self._turn(query)

    def _turn(self, query: StepQuery) -> None:
        """What passes, such as a worker that was slow to start, is no failure of the job's: as a
        job would be, it is started again, here only once."""
        with in_plain_words(self.job.name):
            try:
                query.turn()
            except StreamingQueryException as error:
                if not failure_from(error).is_passing:
                    raise
                self.restart()
                self._started().turn()

    def crash(self, point: CrashPoint) -> None:
        """Run, and die in the first batch with rows: before its rows are written, or just after.

        The next run repeats that batch, as it would after a crash of the process.
        """
        if point not in CRASH_POINTS:
            raise BadStep(f"crash({point!r}): one of {', '.join(CRASH_POINTS)}")
        for query in self._pending():
            with in_plain_words(self.job.name):
                has_crashed = query.turn(crash=point)
            if has_crashed:
                self._must_repeat = True
                return self.restart()
        raise BadStep("there was no batch with rows to crash in: add some first")

    def restart(self) -> None:
        """Forget all but the checkpoint, as a new process would; the function is called anew."""
        if self._query is not None:
            self._query.stop()
        self._query = None

    def rows(self) -> list[Row]:
        """The output so far: the last row of each key, or all rows if the job has none."""
        return self._results.rows()

    def batches(self) -> int:
        """How many batches were written that had rows."""
        return self._results.batches

    def expect(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """The output so far is these rows, in any order. Runs what was added first."""
        self.run()
        self._require(self._typed(rows), self.rows(), what="the output")

    def expect_changes(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """What the job has written since the last look; a change without `_change` is an upsert."""
        self.run()
        new = self._results.changes[self._seen_changes :]
        self._seen_changes = len(self._results.changes)
        self._require(
            [_with_kind(change) for change in self._typed(changes)],
            [_with_kind(change) for change in new],
            what="the changes",
        )

    def as_batch(self) -> list[Row]:
        """The answer of the same function over all that was added, as one batch."""
        self.run()
        with in_plain_words(self.job.name):
            frames = {
                parameter: batch_frame(self._session, one.declared, self._reading)
                for parameter, one in self._inputs.items()
            }
            times = {event_time_of(frame) for frame in frames.values()} - {None}
            frame = called(self.job, frames, times.pop() if len(times) == 1 else None)
            results = Results(self._results.key)
            results.write(0, rows_of(frame.toArrow()))
        return results.rows()

    def expect_same_as_batch(self) -> None:
        """Advance far enough first, if the job waits for time to pass: a batch does not."""
        self._require(self.as_batch(), self.rows(), what="the output, against the batch's,")

    def close(self) -> None:
        """Stop the job and remove the script's topics."""
        self.restart()
        remove_inputs(self._brokers, self._topics)

    @property
    def _reading(self) -> Reading:
        name = f"{self.job.name}-{self._directory.name}"
        return Reading(
            brokers=self._brokers,
            job=name,
            run="steps",
            checkpoint=str(self._checkpoint),
            uses_file=str(self._directory / "uses.json"),
        )

    @property
    def _checkpoint(self) -> Path:
        return self._directory / "checkpoint"

    def _input(self, name: str) -> ScriptInput:
        """By the name that was declared, or that of the parameter."""
        for parameter, one in self._inputs.items():
            if name in (one.name, parameter):
                return one
        known = ", ".join(one.name for one in self._topics)
        raise BadStep(f"{self.job.name} does not read {name!r}, but {known}")

    def _put(self, to: ScriptInput, records: Iterable[Record], *, is_clock: bool = False) -> None:
        """A new turn begins with the first row after a clock: it must be judged by that."""
        if not self._turns or (self._is_advanced and not is_clock):
            self._turns.append([])
        self._is_advanced = is_clock
        self._turns[-1] += [Added(to, record, self._time_ms) for record in records]

    def _pending(self) -> Iterator[StepQuery]:
        """The query, once for each turn to come; the batch that crashed is one of its own."""
        if self._must_repeat:
            self._must_repeat = False
            yield self._started()
        while self._turns:
            send(self._brokers, self._turns.pop(0))
            yield self._started()

    def _started(self) -> StepQuery:
        if self._query is None:
            with in_plain_words(self.job.name):
                self._query = self._start()
        return self._query

    def _start(self) -> StepQuery:
        inputs = {parameter: one.declared for parameter, one in self._inputs.items()}
        frame = call_function(self.job, inputs, self._session, self._reading)
        self._columns = columns_of(frame)
        plan = read_plan(frame)
        self._directory.mkdir(parents=True, exist_ok=True)
        Path(self._reading.uses_file).write_bytes(encode_uses(uses_of(plan)))
        mode = self.job.output_mode or output_mode(frame, plan, job=self.job.name)
        return StepQuery(
            self.job.name,
            frame,
            mode=mode,
            checkpoint=self._checkpoint,
            results=self._results,
        )

    def _typed(self, rows: Iterable[Mapping[str, Any]]) -> list[Row]:
        columns = self._columns
        if columns is None:
            raise BadStep("nothing has run yet: add rows first")
        return [with_moments(dict(row), columns) for row in rows]

    def _require(self, expected: Sequence[Row], found: Sequence[Row], *, what: str) -> None:
        if told := difference(expected, found):
            aside = self._set_aside()
            raise NotAsExpected(f"{self.job.name}: {what} is not as expected. {told}{aside}")

    def _set_aside(self) -> str:
        """Records that reached no operator are the likeliest reason of a difference."""
        reasons = [
            f"{one.name}: {reason}"
            for one in self._topics
            for reason in reasons_set_aside(self._brokers, one)
        ]
        if not reasons:
            return ""
        shown = "".join(f"\n  {reason}" for reason in reasons[:REASONS_MAX])
        counted = "1 record" if len(reasons) == 1 else f"{len(reasons)} records"
        return f"\n\n{counted} reached no operator:{shown}"


def script_session(job: Job, session: SparkSession) -> SparkSession:
    """One for this job, whose sources wait for the script."""
    own = session_for(job, session)
    own.dataSource.register(GatedSource)
    return own


def key_of(job: Job) -> tuple[str, ...]:
    return job.output.key if isinstance(job.output, ToView | ToTopic) else ()


def columns_of(frame: DataFrame) -> Struct:
    """The columns of an output, and the kind of change that each row may name."""
    columns = schema_from_spark_json(frame.schema.jsonValue())
    if columns.field(CHANGE):
        return columns
    return Struct((*columns.fields, Field(CHANGE, Scalar.STRING)))


def _with_kind(change: Mapping[str, Any]) -> Row:
    return {CHANGE: change.get(CHANGE, UPSERT), **row_of(change)}
