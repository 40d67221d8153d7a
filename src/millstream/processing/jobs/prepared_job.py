"""A job made ready to start: its function called, its plan looked at, its checkpoint judged.

Nothing is written and no query runs, so a dry run (`millstream run --check`) does the same. What
the function raises is told with the job and the line.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from millstream.base.declared import DeclaredTopic
from millstream.base.errors import MillstreamError, Rejected
from millstream.base.ports import ViewWriter
from millstream.processing.jobs.catalog import Declared
from millstream.processing.jobs.checkpoints import (
    FROZEN_SETTINGS,
    JobDirectory,
    Manifest,
    first_manifest,
    frozen_differences,
    next_generation,
)
from millstream.processing.jobs.job import Job, code_mark
from millstream.processing.jobs.job_failure import failure_from, place_of
from millstream.processing.jobs.plan_node import shape_of
from millstream.processing.jobs.plan_reader import output_mode, read_plan
from millstream.processing.jobs.plan_shape import Comparison, PlanShape, compare
from millstream.processing.jobs.plan_uses import uses_of
from millstream.processing.jobs.table_result import require_topic_key, table_result
from millstream.processing.jobs.used_columns import used_columns
from millstream.processing.reading.event_time import current_event_time
from millstream.processing.reading.frames import Reading, stream_frame
from millstream.processing.reading.last_use import Uses
from millstream.processing.session import make_active, register_sources
from millstream.processing.writing.view_changes import KeptRows


class FunctionRaised(Rejected):
    def __init__(self, *, job: str, place: str, reason: str) -> None:
        super().__init__(f"job {job}: its function raised {reason} (at {place})")
        self.job, self.place, self.reason = job, place, reason


class NotAFrame(Rejected):
    def __init__(self, *, job: str, place: str, found: object) -> None:
        what = "a frame that is no stream" if isinstance(found, DataFrame) else repr(found)
        super().__init__(
            f"job {job}: its function (at {place}) returned {what}; it must return a DataFrame "
            "made of its inputs"
        )
        self.job, self.place, self.found = job, place, found


class CannotGoOn(Rejected):
    def __init__(self, *, job: str, comparison: Comparison) -> None:
        super().__init__(
            f"job {job} {comparison}. Its checkpoint is of another shape: start it over with "
            f"`millstream run --rebuild {job}`, or undo the change"
        )
        self.job, self.comparison = job, comparison


class JobView(ViewWriter, Protocol):
    """A view that a job can rebuild: a new generation is read once it is served."""

    def serve(self, *, epoch: int | None = None) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all jobs of an app run with.

    `open_view` opens the store of a view's generation for writing, `open_rows` for reading;
    `is_served`: whether readers see that one. `is_input`: whether a job has this view as an input.
    `note_failure` keeps the whole of what a job failed with.
    """

    app: str
    session: SparkSession
    brokers: str
    directory: Path
    open_view: Callable[[Job, int], JobView]
    is_served: Callable[[Job, int], bool] = lambda _job, _generation: False
    open_rows: Callable[[Job, int], KeptRows] | None = None
    is_input: Callable[[Job], bool] = lambda _job: False
    client: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, Declared] = field(default_factory=dict)
    note_failure: Callable[[str, BaseException], None] | None = None

    def full_name(self, job: Job) -> str:
        """What a job is called where several apps may meet: at the broker, and in stores."""
        return f"{self.app}.{job.name}"


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """`uses` are the events that it can use, by source; `notes` are what should be said before it
    starts."""

    job: Job
    frame: DataFrame
    mode: str
    manifest: Manifest
    comparison: Comparison
    directory: JobDirectory
    reading: Reading
    uses: Mapping[str, Uses] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def checkpoint(self) -> Path:
        return self.directory.checkpoint(self.manifest.generation)

    def require_startable(self) -> None:
        if not self.comparison.can_start:
            raise CannotGoOn(job=self.job.name, comparison=self.comparison)


def prepare(
    job: Job,
    inputs: Mapping[str, Declared],
    around: Surroundings,
    *,
    rebuild: bool = False,
    former: Manifest | None = None,
) -> PreparedJob:
    """`former`: of the generation before, which is to go on beside the current one."""
    directory = JobDirectory(around.directory / job.name, job=job.name)
    old = former or directory.manifest()
    session = session_for(job, around.session)
    settings = {name: session.conf.get(name) or "" for name in FROZEN_SETTINGS}
    # The manifest's run is not known before the shape is, nor the shape before the frames are:
    # a job without a manifest gets its run first.
    manifest = _manifest(job, old, settings, rebuild=rebuild)
    begun = manifest if directory.has_begun(manifest.generation) else None
    reading = _reading(job, around, directory, manifest)
    frame = call_function(job, inputs, session, reading)
    require_topic_key(job, frame, around.topics)
    plan = read_plan(frame)
    shape = shape_of(plan, output=str(job.output))
    return PreparedJob(
        job=job,
        frame=frame,
        mode=job.output_mode or output_mode(frame, plan, job=job.name),
        manifest=replace(
            manifest,
            shape=shape,
            code=code_mark(job.function),
            settings=begun.settings if begun else settings,
        ),
        comparison=_comparison(job, begun, shape),
        directory=directory,
        reading=reading,
        uses=uses_of(plan),
        notes=tuple(frozen_differences(begun, settings)) if begun else (),
    )


def session_for(job: Job, session: SparkSession) -> SparkSession:
    """A copy of the app's session for this job alone, in the same Spark, with the job's settings.

    Spark keeps one map of variables for each source that was registered, changes it when a stream
    starts, and writes it into tasks meanwhile: two jobs that start at once must not share one.
    """
    inside: Any = session._jsparkSession
    own = SparkSession(session.sparkContext, inside.cloneSession())
    make_active(own)  # otherwise it has the sources of the active one, as if they were Spark's
    register_sources(own)
    make_active(session)
    for name, value in job.settings.items():
        own.conf.set(name, value)
    return own


def _manifest(
    job: Job, old: Manifest | None, settings: Mapping[str, str], *, rebuild: bool
) -> Manifest:
    unknown = PlanShape(sources={})
    if old is None:
        return first_manifest(job.name, unknown, "", settings)
    return next_generation(old, unknown, "", settings) if rebuild else old


def _comparison(job: Job, old: Manifest | None, shape: PlanShape) -> Comparison:
    if old is None:
        return Comparison(verdict="new")
    return compare(old.shape, shape, same_code=old.code == code_mark(job.function))


def _reading(
    job: Job, around: Surroundings, directory: JobDirectory, manifest: Manifest
) -> Reading:
    return Reading(
        brokers=around.brokers,
        client=around.client,
        job=around.full_name(job),
        run=manifest.run,
        checkpoint=str(directory.checkpoint(manifest.generation).absolute()),
        uses_file=str(directory.uses(manifest.generation).absolute()),
        records_max=job.records_max,
    )


def reading_of(job: Job, around: Surroundings) -> Reading:
    """How the job reads its topics, as it is now; for a look at them beside a run of it."""
    return Reading(brokers=around.brokers, client=around.client, job=around.full_name(job))


def call_function(
    job: Job, inputs: Mapping[str, Declared], session: SparkSession, reading: Reading
) -> DataFrame:
    """The job's frame over streams of its inputs."""

    def call(reading: Reading) -> DataFrame:
        frames = {
            parameter: stream_frame(session, declared, reading, name=source)
            for (parameter, declared), source in zip(inputs.items(), _sources(inputs), strict=True)
        }
        return called(job, frames, event_time_in(inputs.values()))

    frame = by_used_columns(call, inputs, reading)
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise NotAFrame(job=job.name, place=job.place, found=frame)
    return frame


def by_used_columns(
    call: Callable[[Reading], DataFrame], inputs: Mapping[str, Declared], reading: Reading
) -> DataFrame:
    """The frame, with only those columns of captured tables decoded that it looks at: a change may
    be of a time when another column had another type."""
    frame = call(reading)
    captured = [one.schema for one in inputs.values() if one.encoding == "debezium"]
    columns = {field.name for schema in captured if schema is not None for field in schema}
    if not columns or not isinstance(frame, DataFrame):
        return frame
    used = used_columns(frame)
    return frame if columns <= used else call(replace(reading, used=used))


def called(job: Job, frames: Mapping[str, DataFrame], event_time: str | None) -> DataFrame:
    """What the job's function makes of these frames, with the changes of its tables in it."""
    token = current_event_time.set(event_time)
    try:
        made = job.function(**frames)
        return table_result(job, made) if isinstance(made, DataFrame) else made
    except MillstreamError:
        raise
    except Exception as error:
        place = place_of(job.function, error) or job.place
        reason = f"{type(error).__name__}: {failure_from(error).reason}"
        raise FunctionRaised(job=job.name, place=place, reason=reason) from error
    finally:
        current_event_time.reset(token)


def _sources(inputs: Mapping[str, Declared]) -> list[str]:
    """Named by topic, so that a parameter can be renamed; a topic that is read twice, by both."""
    names = [declared.name for declared in inputs.values()]
    return [
        name if names.index(name) == at else f"{name}.{parameter}"
        for at, (parameter, name) in enumerate(zip(inputs, names, strict=True))
    ]


def event_time_in(inputs: Iterable[Declared]) -> str | None:
    """The column that windows mean which name none: if all topics of the job agree on one."""
    columns = {
        declared.event_time.column
        for declared in inputs
        if isinstance(declared, DeclaredTopic) and declared.event_time is not None
    }
    return columns.pop() if len(columns) == 1 else None
