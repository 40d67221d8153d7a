"""What an application has declared: its topics and tables by name, and its jobs. Pure.

A job finds its inputs here when it is declared, so a misspelt parameter is an error at its line,
not when the job runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic
from millstream.base.near_names import did_you_mean, there_are
from millstream.processing.jobs.job import Job, ToView

Declared = DeclaredTopic | DeclaredTable


class UnknownInput(BadDeclaration):
    def __init__(self, *, job: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        hint = did_you_mean(name, known, otherwise="Declare it first, with app.topic(...)")
        super().__init__(
            f"job {job}: {name!r} is no topic, table or view of this app "
            f"(there are: {there_are(known)}). {hint}"
        )
        self.job, self.name, self.known = job, name, known


class UnknownJob(BadDeclaration):
    def __init__(self, *, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        hint = did_you_mean(name, known)
        told = f"no job {name!r} in this app. There are: {there_are(known)}"
        super().__init__(f"{told}. {hint}".rstrip(". "))
        self.name = name


class Catalog:
    """Names of inputs are unique, and so are names of jobs."""

    def __init__(self) -> None:
        self.inputs: dict[str, Declared] = {}
        self.jobs: dict[str, Job] = {}
        self._idle_alone: set[str] = set()
        # The topic of a view's changes as a table; its columns are known once Spark is there.
        self.view_table: Callable[[Job], DeclaredTable] = _unknown_table
        # The tables that captures bring; their columns are known once a database was asked.
        self.captured: dict[str, Callable[[], DeclaredTable]] = {}
        # What the app has of its own: known when a job is prepared. Other inputs come first.
        self.provided: dict[str, Callable[[], Declared]] = {}

    def declare(self, declared: Declared, *, idles_alone: bool = False) -> None:
        """Declare it; the same again is no error.

        `idles_alone`: its clock goes on while it is idle even if no other source waits for it.
        """
        if idles_alone:
            self._idle_alone.add(declared.name)
        alike = next((one for one in self.inputs if _is_alike(one, declared.name)), None)
        if alike is not None:
            raise BadDeclaration(
                f"topics {alike} and {declared.name} differ in '.' and '_' alone, and a broker "
                "takes only one of them: rename one"
            )
        known = self.inputs.setdefault(declared.name, declared)
        if known != declared:
            raise BadDeclaration(f"{declared.name} is declared already, otherwise: {known}")

    def declare_captured(self, name: str, table: Callable[[], DeclaredTable]) -> None:
        if name in self.inputs or name in self.captured:
            raise BadDeclaration(
                f"{name} is declared already: give the captured table another name, "
                f'tables={{"other_{name}": "{name}"}}'
            )
        self.captured[name] = table

    def provide(self, name: str, declared: Callable[[], Declared]) -> None:
        self.provided[name] = declared

    def add(self, job: Job) -> None:
        known = self.jobs.get(job.name)
        if known is not None:
            raise BadDeclaration(
                f"two jobs with the name {job.name}: at {known.place} and at {job.place}. Rename "
                "one of the functions, or give it name=..."
            )
        for name in job.inputs.values():
            if name not in self._known | self.provided.keys():
                raise UnknownInput(job=job.name, name=name, known=self._known)
        self.jobs[job.name] = job

    def inputs_of(self, job: Job) -> Mapping[str, Declared]:
        """What each parameter of the job's function stands for."""
        found = {parameter: self._input(job, name) for parameter, name in job.inputs.items()}
        if sum(_has_time(declared) for declared in found.values()) > 1:
            return found
        return {parameter: self._alone(declared) for parameter, declared in found.items()}

    def _alone(self, declared: Declared) -> Declared:
        """A single source holds nobody back: no batches for the sake of its clock."""
        if not isinstance(declared, DeclaredTopic) or declared.event_time is None:
            return declared
        if declared.name in self._idle_alone:
            return declared
        return replace(declared, event_time=replace(declared.event_time, idle_ms=None))

    def _input(self, job: Job, name: str) -> Declared:
        if name in self.inputs:
            return self.inputs[name]
        if name in self.captured:
            return self.captured[name]()
        if name in self.views:
            return self.view_table(self.jobs[name])
        if name in self.provided:
            return self.provided[name]()
        raise UnknownInput(job=job.name, name=name, known=self._known)

    def brought_topics(self, jobs: Iterable[Job]) -> set[str]:
        """Those that these jobs read of captured tables, and of the app's own events."""
        names = {name for job in jobs for name in job.inputs.values()} - self.inputs.keys()
        brought = {**self.provided, **self.captured}
        return {brought[name]().name for name in names if name in brought}

    @property
    def _known(self) -> set[str]:
        return {*self.inputs, *self.captured, *self.views}

    @property
    def views(self) -> list[str]:
        return [job.name for job in self.jobs.values() if isinstance(job.output, ToView)]

    def is_input(self, view: Job) -> bool:
        """Whether a job has this view as an input; a topic of the same name comes first."""
        if view.name in self.inputs or view.name in self.captured:
            return False
        return any(view.name in job.inputs.values() for job in self.jobs.values())

    def job(self, name: str) -> Job:
        if name not in self.jobs:
            raise UnknownJob(name=name, known=self.jobs)
        return self.jobs[name]


def _is_alike(one: str, other: str) -> bool:
    return one != other and one.replace(".", "_") == other.replace(".", "_")


def _unknown_table(view: Job) -> DeclaredTable:
    raise BadDeclaration(f"view {view.name}: its columns are known when its job is prepared")


def _has_time(declared: Declared) -> bool:
    return isinstance(declared, DeclaredTopic) and declared.event_time is not None
