"""The jobs of an App, joined to what they run with: Spark, the broker, the stores of views.

Spark is started when jobs first run, so an App without jobs needs none. Which job does what is in
`processing/`; here is only what it cannot know.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.base.errors import Rejected
from millstream.processing.jobs.catalog import Catalog
from millstream.processing.jobs.job import Job, ToTopic, ToView
from millstream.publishing import make_declared_topic
from millstream.schemas.registration import settle_reader, settle_writer
from millstream.schemas.schema_topic import SchemaTopic
from millstream.settings import ClientSettings, SparkSettings, load

if TYPE_CHECKING:
    from millstream.processing.jobs.app_session import AppSession
    from millstream.processing.jobs.job_failure import Failure
    from millstream.processing.jobs.prepared_job import JobView, PreparedJob, Surroundings
    from millstream.processing.jobs.progress import JobProgress
    from millstream.processing.jobs.supervisor import Supervisor

# What a client of librdkafka is told that Spark's tasks choose for themselves.
NOT_FOR_TASKS = ("bootstrap.servers", "log_level")
JOBS_DIRECTORY = "jobs"
VIEWS_DIRECTORY = "views"


class JobsFailed(Rejected):
    def __init__(self, *, failures: "Mapping[str, Failure]") -> None:
        told = ". ".join(_sentence(job, failure) for job, failure in failures.items())
        super().__init__(told)
        self.failures = failures


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


class SparkNotInstalled(Rejected):
    def __init__(self, *, missing: str) -> None:
        super().__init__(
            f"Jobs run on Spark, and {missing} is not installed: pip install 'millstream[spark]'"
        )
        self.missing = missing


class Jobs:
    """Those of one App. One run at a time."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        app: str,
        data: Path,
        client_config: Callable[[], Mapping[str, Any]],
        owns_broker: Callable[[], bool],
    ) -> None:
        self._catalog, self._app, self._data = catalog, app, data
        self._client_config, self._owns_broker = client_config, owns_broker
        self._session: AppSession | None = None
        self._supervisor: Supervisor | None = None
        self._stopping = threading.Event()

    def run(
        self,
        *,
        once: bool = False,
        only: Iterable[str] | None = None,
        rebuild: Iterable[str] = (),
        look: "Callable[[list[JobProgress]], None] | None" = None,
    ) -> "list[JobProgress]":
        """Run the jobs until they are done (`once`) or stopped; raises for those that failed."""
        chosen, anew = self._chosen(only), {self._catalog.job(name).name for name in rebuild}
        self._stopping.clear()
        supervisor = self._supervise(chosen, once=once, rebuild=anew)
        if self._stopping.is_set():  # while Spark started
            supervisor.stop()
        supervisor.run(look=look)
        if supervisor.failures:
            raise JobsFailed(failures=supervisor.failures)
        return supervisor.progress

    def _supervise(self, jobs: list[Job], *, once: bool, rebuild: set[str]) -> "Supervisor":
        around = self._surroundings()
        from millstream.processing.jobs.job_run import JobRun
        from millstream.processing.jobs.supervisor import Supervisor

        self._make_topics(jobs, self._client_config())
        self._settle_schemas(jobs, self._client_config())
        self._supervisor = Supervisor(
            [
                JobRun(
                    job,
                    self._catalog.inputs_of(job),
                    around,
                    once=once,
                    rebuild=job.name in rebuild,
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
                found[job.name] = prepare(job, self._catalog.inputs_of(job), around)
            except Rejected as error:
                found[job.name] = error
        return found

    def progress(self) -> "list[JobProgress]":
        """How the jobs get on; of none if they do not run."""
        return self._supervisor.progress if self._supervisor else []

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

    def view_file(self, name: str) -> Path:
        return self._data / VIEWS_DIRECTORY / f"{name}.sqlite"

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
            directory=self._data.absolute() / JOBS_DIRECTORY,
            open_view=self._open_view,
            topics=self._catalog.inputs,
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
            )
        return self._session

    def _open_view(self, job: Job, generation: int) -> "JobView":
        from millstream.views.stores.sqlite_store import SqliteView

        assert isinstance(job.output, ToView)
        path = self.view_file(job.name)
        return SqliteView(path, view=job.name, key=job.output.key, generation=generation)

    def _make_topics(self, jobs: list[Job], config: Mapping[str, Any]) -> None:
        """Inputs that are not there: made on the app's own broker, or where partitions= says so.

        Elsewhere a topic that is missing is more likely misspelt than new.
        """
        inputs = {one.name: one for job in jobs for one in self._catalog.inputs_of(job).values()}
        for declared in inputs.values():
            if self._owns_broker() or declared.partitions is not None:
                make_declared_topic(config, declared)

    def _settle_schemas(self, jobs: list[Job], config: Mapping[str, Any]) -> None:
        """What is read and written must follow what the topics' schemas were."""
        with SchemaTopic(config, name=load(ClientSettings).schemas_topic) as schemas:
            for job in jobs:
                for declared in self._catalog.inputs_of(job).values():
                    settle_reader(schemas, declared)
                output = job.output
                if isinstance(output, ToTopic) and output.topic in self._catalog.inputs:
                    settle_writer(schemas, self._catalog.inputs[output.topic])
