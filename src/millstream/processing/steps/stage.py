"""Where scripts are played: one Spark session, one broker, a directory for checkpoints.

`millstream_steps` (millstream.testing) is one. It closes the scripts that it has made.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from pyspark.sql import SparkSession

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.processing.jobs.catalog import Catalog, Declared
from millstream.processing.jobs.job import Job, ToView, inputs_of
from millstream.processing.steps.script import BadStep, StepScript


class Application(Protocol):
    """An App, as far as a script knows it."""

    @property
    def catalog(self) -> Catalog: ...


class DeclaredHere(Protocol):
    """What `app.topic` and `app.table` return, as far as a script knows it."""

    declared: Declared


Given: TypeAlias = Declared | DeclaredHere
Inputs: TypeAlias = Iterable[Given] | Mapping[str, Given]


class Stage:
    def __init__(self, session: SparkSession, brokers: str, directory: Path) -> None:
        self._session = session
        self._brokers = brokers
        self._directory = directory
        self._scripts = ExitStack()

    def __call__(
        self,
        tried: Application | Callable[..., Any],
        job: str | None = None,
        *,
        inputs: Inputs = (),
        key: str | Iterable[str] | None = None,
        mode: str | None = None,
    ) -> StepScript:
        """A script for a job of an app, by its name. Or for any function of DataFrames: then
        `inputs` are the topics and tables that its parameters name, or by parameter what each one
        is; `key` is that of its output."""
        catalog = getattr(tried, "catalog", None)
        if isinstance(catalog, Catalog):
            return self._script(catalog, catalog.job(job or only_job(catalog)))
        return self._script(*declared_for(tried, inputs, key, mode))

    def _script(self, catalog: Catalog, job: Job) -> StepScript:
        directory = self._directory / f"{job.name}-{uuid.uuid4().hex[:8]}"
        script = StepScript(self._session, self._brokers, job, catalog.inputs_of(job), directory)
        self._scripts.callback(script.close)
        return script

    def close(self) -> None:
        self._scripts.close()


def only_job(catalog: Catalog) -> str:
    names = sorted(catalog.jobs)
    if len(names) != 1:
        raise BadStep(f"say which job of the app: {', '.join(names) or 'it has none'}")
    return names[0]


def declared_for(
    function: Any,
    inputs: Inputs,
    key: str | Iterable[str] | None,
    mode: str | None,
) -> tuple[Catalog, Job]:
    """A function as the only job of a catalog of its own."""
    catalog = Catalog()
    declared: dict[str, Declared] = {}  # by parameter, where that is given
    if isinstance(inputs, Mapping):
        declared = {parameter: _declared(one) for parameter, one in inputs.items()}
        listed = list(declared.values())
    else:
        listed = [_declared(one) for one in inputs]
    for one in listed:
        catalog.declare(one)
    job = Job(
        name=function.__name__,
        function=function,
        inputs=inputs_of(function, {name: one.name for name, one in declared.items()}),
        output=ToView(key=(key,) if isinstance(key, str) else tuple(key or ())),
        output_mode=mode,  # type: ignore[arg-type]  # Job looks at it
    )
    catalog.add(job)
    return catalog, job


def _declared(one: Given) -> Declared:
    return one if isinstance(one, DeclaredTopic | DeclaredTable) else one.declared
