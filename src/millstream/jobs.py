"""The jobs of an App, joined to what they run with: Spark, the broker, the stores of views.

Spark is started when jobs first run, so an App without jobs needs none. Which job does what is in
`processing/`; here is only what it cannot know.
"""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.base.clock import system_clock
from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.errors import MillstreamError, Rejected
from millstream.base.ports import Positions
from millstream.base.topic_terms import UnfitTopic
from millstream.declared_views import DeclaredViews
from millstream.processing.jobs.catalog import Catalog
from millstream.processing.jobs.checkpoints import JobDirectory, NothingBefore
from millstream.processing.jobs.job import Job, ToFunction, ToTopic, ToView
from millstream.processing.jobs.job_status import (
    JobStatus,
    StatusFiles,
    ask_restart,
    is_restart_asked,
    read_status,
)
from millstream.processing.log_files import LogFiles
from millstream.publishing import (
    check_declared_topics,
    make_declared_topic,
    make_declared_topics,
)
from millstream.schemas.registration import settle_reader, settle_writer
from millstream.schemas.schema_topic import SchemaTopic
from millstream.settings import ClientSettings, SparkSettings, load
from millstream.views.store import ViewNotFound, require_generation

if TYPE_CHECKING:
    from millstream.processing.jobs.app_session import AppSession
    from millstream.processing.jobs.job_failure import Failure
    from millstream.processing.jobs.prepared_job import JobView, PreparedJob, Surroundings
    from millstream.processing.jobs.progress import JobProgress
    from millstream.processing.jobs.supervisor import Supervisor
    from millstream.processing.reading.frames import Reading
    from millstream.views.verification import Verdict

# What a client of librdkafka is told that Spark's tasks choose for themselves.
NOT_FOR_TASKS = ("bootstrap.servers", "log_level")
JOBS_DIRECTORY = "jobs"
SCRATCH_DIRECTORY = "scratch"
# While Spark starts, how often others are told.
ANNOUNCE_SECONDS = 0.5
SPARK_STARTS = "Spark starts"


class JobsFailed(Rejected):
    """`log`: the file that has all of what they failed with."""

    def __init__(self, *, failures: "Mapping[str, Failure]", log: Path | None = None) -> None:
        told = ". ".join(_sentence(job, failure) for job, failure in failures.items())
        super().__init__(f"{told.rstrip('.')}. All of it is in {log}" if log else told)
        self.failures, self.log = failures, log


def _sentence(job: str, failure: "Failure") -> str:
    text = str(failure)
    return text if text.startswith(f"job {job}") else f"job {job} failed: {text}"


class NoJobs(Rejected):
    def __init__(self, *, app: str) -> None:
        super().__init__(
            f"app {app} has no jobs: register functions with @app.view(key=...), @app.job(to=...) "
            "or @app.sink(write)"
        )
        self.app = app


class NobodyRunsIt(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(
            f"nobody runs job {job} on this machine now, so it cannot begin again: start it with "
            "`millstream up` or `millstream run`"
        )
        self.job = job


class NotChosen(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(
            f"job {job} is to be rebuilt, but is not among those to run: name it in both, or leave "
            "out which are to run"
        )
        self.job = job


class SparkNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"Jobs run on Spark, and {missing} is not installed: pip install 'millstream[spark]'"
        )
        self.missing = missing


class SideEffects(Rejected):
    def __init__(self, *, job: str, effect: str) -> None:
        super().__init__(
            f"job {job} writes into {effect}: a rebuild would write all of it again. If that is "
            "wanted, say --repeat-side-effects"
        )
        self.job, self.effect = job, effect


def require_repeatable(jobs: Iterable[Job]) -> None:
    """Refuse to do again what cannot be taken back."""
    for job in jobs:
        match job.output:
            case ToTopic(topic=topic):
                raise SideEffects(job=job.name, effect=f"topic {topic}")
            case ToFunction(is_external=True):
                raise SideEffects(job=job.name, effect="a sink that is external")


class Jobs:
    """Those of one App. One run at a time."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        app: str,
        data: Path,
        views: DeclaredViews,
        client_config: Callable[[], Mapping[str, Any]],
        owns_broker: Callable[[], bool],
    ) -> None:
        self._catalog, self._app, self._data, self._views = catalog, app, data, views
        self._client_config, self._owns_broker = client_config, owns_broker
        self._session: AppSession | None = None
        self._changes: dict[str, DeclaredTable] = {}
        catalog.view_table = self._changes_table
        self._supervisor: Supervisor | None = None
        self._stopping = threading.Event()
        self.logs = LogFiles(data)

    def run(
        self,
        *,
        once: bool = False,
        only: Iterable[str] | None = None,
        rebuild: Iterable[str] = (),
        repeat_side_effects: bool = False,
        verify: float | None = None,
        look: "Callable[[list[JobProgress]], None] | None" = None,
        stays: bool = False,
    ) -> "list[JobProgress]":
        """Run the jobs until they are done (`once`) or stopped; raises for those that failed.

        They start one after the other. `verify`: how many percent of the keys of a rebuilt view are
        compared with a recomputation before it is served; of runs over what is there. `stays`:
        until stopped, also when all have failed: they may be asked to begin again.
        """
        chosen, anew = self._asked_for(only, rebuild, repeat_side_effects=repeat_side_effects)
        self._stopping.clear()
        with self._announced(chosen, look):
            supervisor = self._supervise(chosen, once=once, rebuild=anew, verify=verify)
        if self._stopping.is_set():  # while Spark started
            supervisor.stop()
        for job in chosen:
            is_restart_asked(self._jobs_directory, job.name)  # of a run before
        told = self._told_to_others(supervisor, look)
        supervisor.run(look=told, stays=stays)
        if supervisor.failures:
            log = self.logs.jobs if self.logs.jobs.exists() else None
            raise JobsFailed(failures=supervisor.failures, log=log)
        return supervisor.progress

    @contextlib.contextmanager
    def _announced(
        self, jobs: "list[Job]", look: "Callable[[list[JobProgress]], None] | None"
    ) -> Iterator[None]:
        """Others see that the jobs are starting while Spark does, which takes its time."""
        from millstream.processing.jobs.progress import JobProgress

        files, ended = StatusFiles(self._jobs_directory, system_clock), threading.Event()
        stage = SPARK_STARTS if self._session is None else "its topics are looked at"
        told = [JobProgress(job=job.name, stage=stage) for job in jobs]

        def announce() -> None:
            while not ended.wait(ANNOUNCE_SECONDS):
                files.announce(told)
                if look is not None:
                    look(told)

        thread = threading.Thread(target=announce, name="jobs start", daemon=True)
        thread.start()
        failed: list[JobProgress] = []
        try:
            yield
        except MillstreamError as error:
            failed = [replace(one, state="failed", stage="", error=str(error)) for one in told]
            raise
        finally:
            ended.set()
            thread.join()
            files.announce(failed)

    def _asked_for(
        self, only: Iterable[str] | None, rebuild: Iterable[str], *, repeat_side_effects: bool
    ) -> tuple[list[Job], set[str]]:
        """The jobs to run, and which of them to rebuild."""
        chosen, anew = self._chosen(only), {self._catalog.job(name).name for name in rebuild}
        if left_out := anew - {job.name for job in chosen}:
            raise NotChosen(job=min(left_out))
        if not repeat_side_effects:
            require_repeatable(self._catalog.job(name) for name in anew)
        return chosen, anew

    def _told_to_others(
        self, supervisor: "Supervisor", look: "Callable[[list[JobProgress]], None] | None"
    ) -> "Callable[[list[JobProgress]], None]":
        """Also keeps the files that other processes see the jobs by, and does what they ask."""
        directory = self._jobs_directory
        files = StatusFiles(directory, system_clock)

        def look_and_tell(progress: "list[JobProgress]") -> None:
            files.look(progress)
            self.logs.bound()
            for one in progress:
                if is_restart_asked(directory, one.job):
                    supervisor.restart(one.job)
            if look is not None:
                look(progress)

        return look_and_tell

    def status(self, job: str) -> JobStatus | None:
        """How a job gets on, in whichever process of this machine it runs; None: it never did."""
        return read_status(self._jobs_directory, job)

    def restart(self, job: str) -> None:
        """Ask whoever runs a job on this machine to begin it again from its checkpoint, with the
        code that it has: also one that has failed for good. Does not wait."""
        status = self.status(self._catalog.job(job).name)
        if status is None or not status.is_attended(now_ms=system_clock()):
            raise NobodyRunsIt(job=job)
        ask_restart(self._jobs_directory, job)

    @property
    def _jobs_directory(self) -> Path:
        return self._data.absolute() / JOBS_DIRECTORY

    def _supervise(
        self, jobs: list[Job], *, once: bool, rebuild: set[str], verify: float | None
    ) -> "Supervisor":
        self._make_declared(
            jobs
        )  # before Spark, which takes its time: another client may come first
        around = self._surroundings()
        from millstream.processing.jobs.job_run import JobRun
        from millstream.processing.jobs.supervisor import Supervisor

        self._make_brought(jobs, self._client_config())
        self._settle_schemas(jobs, self._client_config())
        self._supervisor = Supervisor(
            [
                JobRun(
                    job,
                    self._catalog.inputs_of(job),
                    around,
                    once=once,
                    rebuild=job.name in rebuild,
                    verify=None if verify is None else partial(self._verify, verify),
                )
                for job in jobs
            ]
        )
        return self._supervisor

    def prepared(self, *, only: Iterable[str] | None = None) -> "dict[str, PreparedJob | Rejected]":
        """What a run would start with: each job with its verdict, or what is wrong with it."""
        chosen, around = self._chosen(only), self._surroundings()
        from millstream.processing.jobs.prepared_job import prepare

        found: dict[str, PreparedJob | Rejected] = {}
        for job in chosen:
            try:
                check_declared_topics(self._client_config(), self._declared_of([job]))
                found[job.name] = prepare(job, self._catalog.inputs_of(job), around)
            except Rejected as error:
                found[job.name] = error
        return found

    def verdict(self, view: str, *, sample: float = 100.0) -> "Verdict":
        """Compare what readers see of a view with what its topics come to, up to its positions."""
        job = self._catalog.job(view)
        store = self._views.store_of(job)
        served = [one for one in store.generations() if one.is_served]
        if not served:
            raise ViewNotFound(view=view, place=store.place)
        around = self._surroundings()
        from millstream.processing.jobs.prepared_job import reading_of

        reading = reading_of(job, around)
        return self._compared(job, reading, served[0].number, served[0].positions, sample)

    def _verify(self, sample: float, prepared: "PreparedJob", positions: Positions) -> None:
        from millstream.views.verification import ViewDiffers

        job, generation = prepared.job, prepared.manifest.generation
        if isinstance(job.output, ToView):
            found = self._compared(job, prepared.reading, generation, positions, sample)
            if not found.is_same:
                raise ViewDiffers(view=job.name, generation=generation, verdict=found)

    def _compared(
        self, job: Job, reading: "Reading", generation: int, positions: Positions, sample: float
    ) -> "Verdict":
        """Recompute the view into a file of its own, as its job would write it."""
        from millstream.processing.jobs.recomputation import recomputed
        from millstream.views.stores.sqlite.file import SqliteStore
        from millstream.views.verification import compared, write_whole

        assert isinstance(job.output, ToView)
        session = self._open_session().session
        rows = recomputed(job, self._catalog.inputs_of(job), session, reading, positions)
        with tempfile.TemporaryDirectory(prefix="millstream-verify-") as scratch:
            expected = SqliteStore(Path(scratch) / "view.sqlite", view=job.name, key=job.output.key)
            write_whole(expected, rows, job=job.name)
            with (
                contextlib.closing(expected.reader()) as wanted,
                contextlib.closing(self._views.store_of(job).reader(generation)) as found,
            ):
                return compared(found, wanted, sample=sample)

    def roll_back(self, view: str) -> int:
        """Show readers the generation before, whose job goes on from where it was; its number.

        The job's directory goes first: killed in between, a run of the job serves it as well.
        """
        directory, store = self._directory(view), self._views.store(view)
        with directory.held("is being rolled back"):
            current = directory.manifest()
            number = current.previous if current is not None else None
            if number is None:
                raise NothingBefore(job=view)
            require_generation(view, number, [one.number for one in store.generations()])
            directory.roll_back()
            store.serve(number)
        return number

    def drop(self, view: str, generation: int | None = None) -> None:
        """Remove a generation that is not served; or the view, and with it all its job knows."""
        directory, store = self._directory(view), self._views.store(view)
        with directory.held("is being dropped"):
            store.drop(generation)
            if generation is None:
                directory.forget()

    def _directory(self, job: str) -> JobDirectory:
        return JobDirectory(self._jobs_directory / job, job=job)

    def told(self, job: str) -> str:
        """How a job is, in a sentence, for who waits for its view."""
        from millstream.processing.jobs.job_words import newest, sentence

        found = next((one for one in self.progress() if one.job == job), None)
        now_ms = system_clock()
        return sentence(
            newest(self.status(job), found, now_ms=now_ms),
            jobs=str(self._jobs_directory),
            now_ms=now_ms,
            host=socket.gethostname(),
        )

    def progress(self) -> "list[JobProgress]":
        """How the jobs get on; of none if they do not run."""
        return self._supervisor.progress if self._supervisor else []

    @property
    def was_stopped(self) -> bool:
        """Whether the last run was told to end, by `stop` or a signal, and did not by itself."""
        return self._supervisor is not None and self._supervisor.was_stopped

    def stop(self) -> None:
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.stop()

    def close(self) -> None:
        """Stop the jobs, and Spark if it was started here."""
        self.stop()
        if self._session is not None:
            self._session.close()
        self._session = None
        self.logs.close()

    def _chosen(self, only: Iterable[str] | None) -> list[Job]:
        if not self._catalog.jobs:
            raise NoJobs(app=self._app)
        if only is None:
            return list(self._catalog.jobs.values())
        return [self._catalog.job(name) for name in only]

    def _surroundings(self) -> "Surroundings":
        session = self._open_session().session
        from millstream.processing.jobs.prepared_job import Surroundings

        config = self._client_config()
        return Surroundings(
            app=self._app,
            session=session,
            brokers=str(config["bootstrap.servers"]),
            client={name: str(config[name]) for name in config if name not in NOT_FOR_TASKS},
            directory=self._jobs_directory,
            open_view=self._open_view,
            is_served=self._is_served,
            open_rows=lambda job, generation: self._views.store_of(job).reader(generation),
            is_input=self._catalog.is_input,
            topics=self._catalog.inputs,
            note_failure=self.logs.note_failure,
        )

    def _open_session(self) -> "AppSession":
        if self._session is None:
            try:
                from millstream.processing.jobs.app_session import AppSession
            except ModuleNotFoundError as error:
                raise SparkNotInstalled(missing=str(error.name)) from None
            settings = load(SparkSettings)
            self._session = AppSession(
                self._app,
                master=settings.master or None,
                settings=dict(settings.conf),
                quick_start=settings.quick_start,
                log_level=settings.log_level,
                scratch=self._data.absolute() / SCRATCH_DIRECTORY,
                logs=self.logs if self.logs.open() else None,
            )
        return self._session

    def _open_view(self, job: Job, generation: int) -> "JobView":
        return self._views.store_of(job).writer(generation)

    def _changes_table(self, view: Job) -> DeclaredTable:
        """The changes of a view, of the generation that readers see, for who has it as an input."""
        from millstream.processing.jobs.prepared_job import call_function, reading_of
        from millstream.processing.writing.output import columns_of
        from millstream.processing.writing.view_changes import changes_table, changes_topic

        assert isinstance(view.output, ToView)
        name = changes_topic(self._app, view.name, self._directory(view.name).served_generation())
        if name not in self._changes:
            around = self._surroundings()
            inputs = self._catalog.inputs_of(view)
            frame = call_function(view, inputs, around.session, reading_of(view, around))
            self._changes[name] = changes_table(name, columns_of(frame), view.output.key)
        return self._changes[name]

    def _is_served(self, job: Job, generation: int) -> bool:
        there = self._views.store_of(job).generations()
        return any(one.number == generation and one.is_served for one in there)

    def make_topics(
        self,
        only: Iterable[str] | None = None,
        *,
        rebuild: Iterable[str] = (),
        repeat_side_effects: bool = False,
    ) -> None:
        """Make the declared topics that the jobs use, and compare those that exist: before captures
        and Spark start, which take their time, so that no other client comes first. What a run asks
        for is looked at before that."""
        if self._catalog.jobs:
            terms = {"repeat_side_effects": repeat_side_effects}
            self._make_declared(self._asked_for(only, rebuild, **terms)[0])

    def _make_declared(self, jobs: Iterable[Job]) -> None:
        """One that is missing is made on the app's own broker, or where partitions= says so.
        Elsewhere it is more likely misspelt than new."""
        wanted = self._declared_of(jobs)
        if not wanted:
            return
        config, makes_all = self._client_config(), self._owns_broker()
        made = [one for one in wanted if makes_all or one.partitions is not None]
        try:
            make_declared_topics(config, made)
            check_declared_topics(config, [one for one in wanted if one not in made])
        except UnfitTopic as error:
            if not makes_all:
                raise
            start = f"millstream broker --data {self._data}"
            raise UnfitTopic(
                terms=error.terms, differences=error.differences, start=start
            ) from None

    def _declared_of(self, jobs: Iterable[Job]) -> list[DeclaredTopic | DeclaredTable]:
        """What they read, and tables that they write: what else they write is made by its rows."""
        declared, names = self._catalog.inputs, dict[str, None]()
        for job in jobs:
            names |= dict.fromkeys(name for name in job.inputs.values() if name in declared)
            output = job.output
            if isinstance(output, ToTopic) and isinstance(
                declared.get(output.topic), DeclaredTable
            ):
                names[output.topic] = None
        return [declared[name] for name in names]

    def _make_brought(self, jobs: list[Job], config: Mapping[str, Any]) -> None:
        """The topics of captured tables, whose captures may have started just now, of views that
        are inputs, and of the app's events."""
        brought = self._catalog.brought_topics(jobs)
        inputs = {one.name: one for job in jobs for one in self._catalog.inputs_of(job).values()}
        for declared in inputs.values():
            if declared.name in self._changes:
                self._make_changes_topic(declared.name, config)
            elif declared.name in brought:
                make_declared_topic(config, declared)

    def _make_changes_topic(self, name: str, config: Mapping[str, Any]) -> None:
        from millstream.processing.writing.view_changes import make_changes_topic

        client = {key: str(config[key]) for key in config if key not in NOT_FOR_TASKS}
        make_changes_topic(str(config["bootstrap.servers"]), client, name)

    def _settle_schemas(self, jobs: list[Job], config: Mapping[str, Any]) -> None:
        """What is read and written must follow what the topics' schemas were."""
        with SchemaTopic(config, name=load(ClientSettings).schemas_topic) as schemas:
            for job in jobs:
                for declared in self._catalog.inputs_of(job).values():
                    if declared.encoding != "debezium":  # its database says what it holds
                        settle_reader(schemas, declared)
                output = job.output
                if isinstance(output, ToTopic) and output.topic in self._catalog.inputs:
                    settle_writer(schemas, self._catalog.inputs[output.topic])
