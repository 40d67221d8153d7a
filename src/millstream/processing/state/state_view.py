"""A look inside the state of a stopped job, by Spark's own readers of checkpoints.

An operator has one store or several, as a join does; one of ours has variables by name. Reads
only; also moves a job's state to another number of partitions, which is a batch of its own.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.base.errors import Rejected
from millstream.processing.jobs.checkpoints import JobDirectory, Manifest
from millstream.processing.state.state_blobs import readable

PARTITIONS_SETTING = "spark.sql.shuffle.partitions"
STATE_DIRECTORY = "state"
DEFAULT_STORE = "default"


class NoState(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(f"job {job} keeps no state: none of its operators needs any")
        self.job = job


class CannotRepartition(Rejected):
    def __init__(self, *, job: str, count: int, reason: str) -> None:
        super().__init__(f"job {job} cannot be moved to {count} partitions: {reason}")
        self.job, self.count, self.reason = job, count, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStore:
    """One store of one operator; `variable` is its name in an operator of ours."""

    operator: int
    name: str
    store: str
    variable: str | None = None

    def __str__(self) -> str:
        return self.variable or ("" if self.store == DEFAULT_STORE else self.store)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContent:
    """`keys` counts all; `rows` are the first of them. `size_bytes` is the operator's on disk."""

    store: StateStore
    keys: int
    size_bytes: int
    rows: list[dict[str, Any]]


def state_stores(session: SparkSession, checkpoint: Path) -> list[StateStore]:
    if not (checkpoint / STATE_DIRECTORY).exists():
        return []
    operators = session.read.format("state-metadata").load(str(checkpoint)).collect()
    return [store for row in operators for store in _stores_of(row.asDict())]


def _stores_of(operator: dict[str, Any]) -> Iterator[StateStore]:
    known = StateStore(
        operator=operator["operatorId"],
        name=operator["operatorName"],
        store=operator["stateStoreName"],
    )
    variables = json.loads(operator["operatorProperties"] or "{}").get("stateVariables")
    if variables is None:
        yield known
        return
    for variable in variables:
        if not variable["stateName"].startswith("$"):  # Spark's own, for timers and TTL
            yield replace(known, variable=variable["stateName"])


def content_of(
    session: SparkSession, checkpoint: Path, store: StateStore, *, limit: int
) -> StoreContent:
    frame = state_frame(session, checkpoint, store)
    rows = [row.asDict(recursive=True) for row in frame.drop("partition_id").limit(limit).collect()]
    return StoreContent(
        store=store,
        keys=frame.count(),
        size_bytes=_size_bytes(checkpoint / STATE_DIRECTORY / str(store.operator)),
        rows=[readable(row) for row in rows],
    )


def state_frame(session: SparkSession, checkpoint: Path, store: StateStore) -> DataFrame:
    """All rows of a store, as Spark shows them: `key`, `value` and the like."""
    reader = session.read.format("statestore").option("operatorId", store.operator)
    if store.variable is not None:
        return reader.option("stateVarName", store.variable).load(str(checkpoint))
    return reader.option("storeName", store.store).load(str(checkpoint))


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def repartition(session: SparkSession, directory: JobDirectory, count: int) -> Manifest:
    """Spread the state of a stopped job over `count` partitions; the job goes on with them."""
    manifest = directory.manifest()
    job = directory.path.name
    if manifest is None or not _has_state(directory, manifest):
        raise NoState(job=job)
    checkpoint = str(directory.checkpoint(manifest.generation))
    try:
        session._streamingCheckpointManager.repartition(checkpoint, count)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise CannotRepartition(job=job, count=count, reason=reason) from None
    settings = dict(manifest.settings) | {PARTITIONS_SETTING: str(count)}
    moved = replace(manifest, settings=settings)
    directory.write(moved)
    return moved


def _has_state(directory: JobDirectory, manifest: Manifest) -> bool:
    return (directory.checkpoint(manifest.generation) / STATE_DIRECTORY).exists()
