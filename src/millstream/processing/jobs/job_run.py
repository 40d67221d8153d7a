"""Runs one job: starts its query, watches it, and starts it again when what failed may pass.

One per job, in a thread of its own; `supervisor.py` has them all. What to do after a failure is
decided in pure files: `job_failure.py` and `restart_policy.py`.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.base.clock import system_clock
from millstream.base.errors import MillstreamError, Rejected
from millstream.base.ports import Positions
from millstream.base.quantity import SECOND_MS
from millstream.processing.jobs.blame import blamed
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.checkpoint_damage import make_whole
from millstream.processing.jobs.checkpoints import JobDirectory, Manifest
from millstream.processing.jobs.definition import encode_definition
from millstream.processing.jobs.job import Job
from millstream.processing.jobs.job_counts import JobCounts
from millstream.processing.jobs.job_failure import Failure, failure_from
from millstream.processing.jobs.job_output import open_output
from millstream.processing.jobs.lag import Reached, reached_in
from millstream.processing.jobs.lag_meter import LagMeter
from millstream.processing.jobs.prepared_job import PreparedJob, Surroundings, prepare
from millstream.processing.jobs.progress import JobProgress, advanced, follows, is_behind
from millstream.processing.jobs.restart_policy import RestartPolicy
from millstream.processing.reading.last_use import encode_uses
from millstream.processing.session import make_active
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.output import ViewHold

if TYPE_CHECKING:
    from millstream.processing.jobs.former_run import FormerGeneration

WATCH_SECONDS = 0.2
COUNT_SECONDS = 10.0
# What a job waits for while it is starting.
JOBS_BEFORE = "after the jobs before it"
PLANNING = "its plan and its state are made ready"


class EndedByAnother(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(
            f"job {job}: its query was stopped by somebody else: another query of this process "
            "took its checkpoint, or called stop()"
        )
        self.job = job


class JobRun:
    """`progress` and `failure` may be read by any thread; `stop` may be called by any.

    `once` runs over what is there now, then ends. `rebuild` starts the job over, once; then
    `verify` looks at what was built before readers see it, if the run is one over what is there.
    """

    def __init__(
        self,
        job: Job,
        inputs: Mapping[str, Declared],
        around: Surroundings,
        *,
        once: bool = False,
        rebuild: bool = False,
        policy: RestartPolicy | None = None,
        hold: ViewHold | None = None,
        verify: Callable[[PreparedJob, Positions], None] | None = None,
    ) -> None:
        self.job = job
        self.progress = JobProgress(job=job.name, stage=JOBS_BEFORE)
        self.failure: Failure | None = None
        self._inputs, self._around = inputs, around
        self._once, self._rebuild, self._verify = once, rebuild, verify
        self._hold = hold or ViewHold()
        self._former: FormerGeneration | None = None
        self._must_reach: Positions = {}
        self._policy = policy or RestartPolicy()
        self._stopping = threading.Event()
        self._restart_asked = threading.Event()
        self._failures = 0
        self._prepared: PreparedJob | None = None
        self._count_due = 0.0
        self._busy: tuple[str | None, float] | None = None
        self._counted_batch: int | None = None
        self._read_to: Reached = {}
        topics = [declared.name for declared in inputs.values()]
        self._lag_meter = LagMeter(around.brokers, around.client, topics)
        self._counts = JobCounts(
            around.brokers,
            around.client,
            job=around.full_name(job),
            topics=topics,
        )

    @property
    def query_name(self) -> str:
        return self.job.name

    def stop(self) -> None:
        """Ask it to end; the batch that runs is given up, and repeated by the next start."""
        self._stopping.set()

    def restart(self) -> None:
        """Ask it to begin again from its checkpoint, at once if it waits after a failure."""
        self._restart_asked.set()

    def run(self) -> None:
        """Until it is done, stopped, or fails for good; then it may be run again. Holds the job's
        directory meanwhile."""
        self.failure, self._failures = None, 0
        self._restart_asked.clear()
        self._set(error=None, stage=PLANNING, failures=0, retry_at_ms=None)
        directory = JobDirectory(self._around.directory / self.job.name, job=self.job.name)
        try:
            with directory.held():
                try:
                    self._run_again_and_again()
                finally:
                    self._end_former()
        except (MillstreamError, OSError) as error:  # in use, or not to be written
            self._fail(failure_from(error))

    def _run_again_and_again(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._run_query():
                    break
            except Exception as error:  # Spark's types vary: what they say decides
                if self._stopping.is_set():
                    break
                if self._around.note_failure is not None:
                    self._around.note_failure(self.job.name, error)
                if not self._wait_after(self._failure_of(error)):
                    return
        state = "stopped" if self._stopping.is_set() else "done"
        self._set(state=state, stage="", busy_ms=0)

    def _failure_of(self, error: Exception) -> Failure:
        failure = failure_from(error)
        if failure.is_passing or self._prepared is None:
            return failure
        return blamed(failure, self._prepared, self._inputs)

    def _wait_after(self, failure: Failure) -> bool:
        """Wait for the next attempt; False: there is none."""
        self._failures += 1
        delay_ms = None
        if failure.is_passing:
            for_ever = failure.waits_for_space
            delay_ms = self._policy.delay_ms(self._failures, for_ever=for_ever)
        if delay_ms is None:
            self._fail(failure)
            return False
        restarts = self.progress.restarts + 1
        self._set(
            state="waiting",
            error=str(failure),
            restarts=restarts,
            failures=self._failures,
            retry_at_ms=system_clock() + delay_ms,
            stage="",
            busy_ms=0,
        )
        until = time.monotonic() + delay_ms / SECOND_MS
        while (left_s := until - time.monotonic()) > 0 and not self._takes_restart():
            if self._stopping.wait(min(left_s, WATCH_SECONDS)):
                break
        return True

    def _takes_restart(self) -> bool:
        if not self._restart_asked.is_set():
            return False
        self._restart_asked.clear()
        self._failures = 0
        return True

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._set(state="failed", error=str(failure), stage="", busy_ms=0)

    def _run_query(self) -> bool:
        """False if it ended, and has not caught up, or is to begin again: then it runs again."""
        self._prepared = None
        self._read_to = {}
        self._set(state="starting", stage=PLANNING, lag={}, lag_ms={})
        prepared = self._prepare()
        prepared.require_startable()
        make_whole(self.job.name, prepared.checkpoint)
        self._prepared = prepared
        make_active(prepared.frame.sparkSession)
        started = self._begin(prepared)
        prepared.directory.write_uses(started.generation, encode_uses(prepared.uses))
        self._set(generation=started.generation, is_building=started.is_building)
        output = open_output(prepared, self._around, hold=self._hold)
        with contextlib.closing(output):
            query = self._configured(output.writer, prepared).start()
            try:
                settle = partial(self._settle, prepared, started, output.serve)
                return self._watch(query, on_caught_up=settle)
            finally:
                query.stop()
                self._lag_meter.close()

    def _prepare(self) -> PreparedJob:
        return prepare(self.job, self._inputs, self._around, rebuild=self._rebuild)

    def _begin(self, prepared: PreparedJob) -> Manifest:
        """Note the start, and what is started; the generation before goes on beside it."""
        started = replace(prepared.manifest, starts=prepared.manifest.starts + 1)
        prepared.directory.begin(started)
        definition = encode_definition(self.job, self._inputs)
        prepared.directory.write_definition(started.generation, definition)
        self._rebuild = False
        if self._former is None and not self._must_reach:
            from millstream.processing.jobs.former_run import start_former

            self._former = start_former(self.job, started, self._around, self._hold)
        return started

    def _configured(self, writer: DataStreamWriter, prepared: PreparedJob) -> DataStreamWriter:
        writer = (
            writer.queryName(self.query_name)
            .outputMode(prepared.mode)
            .option("checkpointLocation", str(prepared.checkpoint))
        )
        if self._once:
            return writer.trigger(availableNow=True)
        if self.job.trigger_ms is not None:
            return writer.trigger(processingTime=f"{self.job.trigger_ms} milliseconds")
        return writer

    def _watch(self, query: StreamingQuery, *, on_caught_up: Callable[..., bool]) -> bool:
        """Until the query ends or is to stop; raises what it failed with. Whether all is done."""
        self._set(state="running", stage="", retry_at_ms=None)
        has_caught_up = False
        while not self._stopping.wait(WATCH_SECONDS):
            is_active = bool(query.isActive)
            self._note(query)
            self._note_busy(query if is_active else None)
            if not is_active:
                self._require_done(query)
            self._count(at_once=not is_active)
            self._measure(at_once=not is_active)
            if not has_caught_up and (not is_active or self.progress.has_caught_up):
                has_caught_up = on_caught_up(has_ended=not is_active)
            if not is_active:
                return has_caught_up
            if self._takes_restart():
                self._set(state="starting", restarts=self.progress.restarts + 1)
                return False
        return True

    def _require_done(self, query: StreamingQuery) -> None:
        if error := query.exception():
            raise error
        if not self._once:
            raise EndedByAnother(job=self.job.name)

    def _note(self, query: StreamingQuery) -> None:
        """Take what Spark reports. Of batches quicker than we look, all are counted."""
        last: Any = query.lastProgress
        if last is None or last["timestamp"] == self.progress.reported:
            return
        reports: list[Any] = [last] if follows(self.progress, last) else list(query.recentProgress)
        seen = self.progress.reported or ""
        for report in reports:
            if str(report["timestamp"]) > seen:
                facts = json.loads(report.json)
                self.progress = advanced(self.progress, facts)
                self._read_to = reached_in(facts)
        if self.progress.batch is not None:
            self._failures = 0

    def _note_busy(self, query: StreamingQuery | None) -> None:
        """For how long the present batch has taken, in whole seconds."""
        reported, now = self.progress.reported, time.monotonic()
        if query is None or not query.status["isTriggerActive"]:
            self._busy = None
        elif self._busy is None or self._busy[0] != reported:
            self._busy = (reported, now)
        seconds = 0 if self._busy is None else int(now - self._busy[1])
        if self.progress.busy_ms != seconds * SECOND_MS:
            self._set(busy_ms=seconds * SECOND_MS)

    def _count(self, *, at_once: bool) -> None:
        """Ask what was set aside, now and then, after a batch: then the broker is there."""
        now, batch = time.monotonic(), self.progress.batch
        if at_once or (now >= self._count_due and batch != self._counted_batch):
            self._count_due, self._counted_batch = now + COUNT_SECONDS, batch
            # No count is worth a job: who may not read them does not know them.
            with contextlib.suppress(MillstreamError):
                self._set(late=self._counts.late(), dead=self._counts.dead())

    def _measure(self, *, at_once: bool) -> None:
        """The lag against the end of the log as it is now, also while a batch takes long."""
        if self._read_to and (at_once or self._lag_meter.is_due()):
            lag = self._lag_meter.look(self._read_to)
            self._set(lag=lag.records, lag_ms=lag.ms)

    def _settle(
        self,
        prepared: PreparedJob,
        manifest: Manifest,
        serve: Callable[[], None],
        *,
        has_ended: bool,
    ) -> bool:
        """A generation that has caught up takes the place of any other, whose number may be higher:
        that of a job whose directory was removed. False if it is not there yet: behind the one
        before, or to be verified, and still written."""
        verify = self._verify if manifest.is_building else None
        if verify is not None and not has_ended:
            return False
        self._end_former()
        reached = self._reached(prepared, has_ended=has_ended)
        if is_behind(reached, self._must_reach):
            return False
        if verify is not None:
            verify(prepared, reached)
        serve()
        if manifest.is_building:
            prepared.directory.settle(manifest)
            self._set(is_building=False)
        return True

    def _end_former(self) -> None:
        """From here on the new one must reach it: what readers see does not go back in time."""
        if self._former is not None:
            self._must_reach = self._former.end()
            self._former = None

    def _reached(self, prepared: PreparedJob, *, has_ended: bool) -> Positions:
        """With what is written; a batch that was planned may not be yet."""
        log = BatchLog(prepared.checkpoint)
        batch = log.last_batch() if has_ended else self.progress.batch
        return {} if batch is None or batch < 0 else log.positions(batch)

    def _set(self, **facts: Any) -> None:
        self.progress = replace(self.progress, **facts)
