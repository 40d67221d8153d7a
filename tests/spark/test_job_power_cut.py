"""A power cut at every step of a batch, for topics and each store: rows are those of a quiet run.

A job is cut off at a step of its second batch. Of its checkpoint, one of these is left: what was
synced, all that was written, or all of it with empty files where nothing was synced. More records
come, and the job starts from what is left. Stores and the broker have power cuts of their own:
tests/faults/test_log_power_cut.py, test_parquet_view_power_cut.py, and the contract of stores.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.disk import DiskFile, RealDisk
from millstream.base.ports import BatchReceipt
from millstream.processing.jobs.checkpoint_damage import make_whole
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import read_topics, stream_topics
from millstream.processing.writing import checkpoint_sync
from millstream.processing.writing.batch_log import BatchLog
from millstream.processing.writing.output import start_view
from millstream.processing.writing.receipts import PlannedAgain
from millstream.processing.writing.topic_sink import stream_into_topic
from millstream.processing.writing.topic_write import TopicWrite
from millstream.stores import SearchIndex, Sqlite
from millstream.views.store import Home, ViewStore
from tests.clients.steps import Sent, create_topic, produce, unique_name
from tests.spark.conftest import OURS_ALONE
from tests.spark.steps import WITHIN_S, error_of, values_in
from tests.spark.test_view_stores import choice_of

pytestmark = [OURS_ALONE, pytest.mark.full]

STEPS = ("planned", "plan synced", "tasks done", "output committed", "state synced", "done")
SURVIVALS = ("synced", "torn", "all")
# What differs from all others of these; `make test-long` has the rest.
TELLING = {
    *[("synced", step) for step in ("planned", "plan synced", "output committed", "done")],
    *[("torn", step) for step in ("planned", "tasks done", "output committed", "done")],
}
CUTS = [
    pytest.param(*cut, marks=[] if cut in TELLING else pytest.mark.long)
    for cut in [(survival, step) for step in STEPS for survival in SURVIVALS]
]
BATCH_RECORDS, CUT_BATCH, URLS = 4, 1, 3
CUT = "the power is cut"


class SyncedFiles(RealDisk):
    """A disk that copies into `kept` what a power cut leaves: synced files with synced names."""

    def __init__(self, root: Path, kept: Path) -> None:
        super().__init__()
        self._root, self._kept = root, kept
        self._synced: set[Path] = set()

    def open_existing(self, path: Path) -> DiskFile:
        file, synced = super().open_existing(path), self._synced

        class Synced:
            def sync(self) -> None:
                file.sync()
                synced.add(path)

            def close(self) -> None:
                file.close()

        return Synced()  # type: ignore[return-value]

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if not path.is_relative_to(self._root):
            return
        for found in path.iterdir():
            target = self._kept / found.relative_to(self._root)
            if found.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif found in self._synced:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)


class Power:
    """The checkpoint of a job, and the step at which the power is cut."""

    def __init__(
        self, directory: Path, step: str, patch: pytest.MonkeyPatch, batch: int = CUT_BATCH
    ) -> None:
        self.checkpoint, self._kept = directory / "checkpoint", directory / "synced"
        self._disk = SyncedFiles(self.checkpoint, self._kept)
        self._step: str | None = step
        self._batch = batch
        sync_plan, sync_state = checkpoint_sync.sync_plan, checkpoint_sync.sync_state
        receipt = BatchLog.receipt

        def plan(checkpoint: Any, batch: int) -> None:
            self._at("done", batch - 1)
            self._at("planned", batch)
            sync_plan(checkpoint, batch, self._disk)
            self._at("plan synced", batch)

        def state(checkpoint: Any, batch: int) -> None:
            self._at("output committed", batch)
            sync_state(checkpoint, batch, self._disk)
            self._at("state synced", batch)

        def of_batch(log: BatchLog, batch: int, **terms: Any) -> BatchReceipt:
            self._at("tasks done", batch)
            return receipt(log, batch, **terms)

        patch.setattr(checkpoint_sync, "sync_plan", plan)
        patch.setattr(checkpoint_sync, "sync_state", state)
        patch.setattr(BatchLog, "receipt", of_batch)

    def _at(self, step: str, batch: int) -> None:
        if (step, batch) == (self._step, self._batch):
            raise RuntimeError(CUT)

    def back(self, survival: str) -> None:
        """After the cut, with what it left in another directory: Spark keeps state in memory."""
        written, left = self.checkpoint, self.checkpoint.with_name("left")
        shutil.copytree(self._kept if survival == "synced" else written, left)
        if survival == "torn":
            for path in left.rglob("*"):
                if path.is_file() and not (self._kept / path.relative_to(left)).exists():
                    path.write_bytes(b"")
        self.checkpoint, self._step = left, None
        make_whole("counts", left)


class Input:
    def __init__(self, spark: SparkSession, bootstrap: str, admin: AdminClient) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self.topic, self.count = unique_name("in"), 0
        self.batch_records = BATCH_RECORDS
        create_topic(admin, self.topic)

    def add(self, batches: int) -> None:
        numbers = range(self.count, self.count + batches * BATCH_RECORDS)
        produce(self._bootstrap, self.topic, [Sent(value=str(one).encode()) for one in numbers])
        self.count = numbers.stop

    def rows(self) -> DataFrame:
        read = TopicRead(
            brokers=self._bootstrap, topics=(self.topic,), records_max=self.batch_records
        )
        return stream_topics(self._spark, read, name="in").select("key", "value")

    def counts(self) -> DataFrame:
        url = F.concat(F.lit("/"), F.col("value").cast("string").cast("bigint") % URLS)
        return self.rows().groupBy(url.alias("url")).count()


@pytest.fixture
def records(spark: SparkSession, bootstrap: str, admin: AdminClient) -> Input:
    found = Input(spark, bootstrap, admin)
    found.add(batches=3)
    return found


def run(writer: Any, checkpoint: Path) -> None:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"


def count_into(store: ViewStore, records: Input, checkpoint: Path) -> None:
    writer = store.writer(1)
    try:
        found = start_view(records.counts(), writer, job="counts", checkpoint=checkpoint)
        run(found.outputMode("update"), checkpoint)
    finally:
        writer.close()


def require_counts_after_a_cut(
    store: ViewStore, records: Input, power: Power, survival: str
) -> None:
    assert CUT in error_of(lambda: count_into(store, records, power.checkpoint))
    power.back(survival)
    records.add(batches=2)
    count_into(store, records, power.checkpoint)
    with contextlib.closing(store.reader()) as reader:
        found = {row["url"]: row["count"] for row in reader.scan()}
    assert found == Counter(f"/{number % URLS}" for number in range(records.count))


@pytest.mark.parametrize(("survival", "step"), CUTS)
def test_a_view_has_the_rows_of_a_quiet_run_after_a_cut_at_any_step(
    records: Input, step: str, survival: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(tmp_path, step, monkeypatch)
    store = Sqlite().open("counts", ("url",), Home(app="shop", data=tmp_path))
    require_counts_after_a_cut(store, records, power, survival)


@pytest.mark.parametrize("survival", ["synced", "torn"])
def test_a_view_has_the_rows_of_a_quiet_run_after_a_cut_in_its_first_batch(
    records: Input, survival: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = Power(tmp_path, "planned", monkeypatch, batch=0)
    (tmp_path / "synced").mkdir()
    store = Sqlite().open("counts", ("url",), Home(app="shop", data=tmp_path))
    require_counts_after_a_cut(store, records, power, survival)


@pytest.fixture(
    scope="module", params=["Topic", "Delta", "Parquet", "SearchIndex", "Postgres", "Redis"]
)
def other_choice(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    with ExitStack() as servers:
        directory = tmp_path_factory.mktemp("store")
        is_search = request.param == "SearchIndex"
        yield (
            SearchIndex(text=["url"]) if is_search else choice_of(request.param, directory, servers)
        )


@pytest.mark.parametrize(
    "step", [pytest.param("planned", marks=pytest.mark.long), "output committed"]
)
def test_every_store_has_the_rows_of_a_quiet_run_after_a_cut(
    other_choice: Any,
    records: Input,
    bootstrap: str,
    step: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the output of a batch and after it: what lies between is the same for all stores."""
    power = Power(tmp_path, step, monkeypatch)
    home = Home(app="shop", data=tmp_path, client={"bootstrap.servers": bootstrap})
    store = other_choice.open(unique_name("counts"), ("url",), home)
    require_counts_after_a_cut(store, records, power, "synced")


@pytest.mark.parametrize(
    ("survival", "step"), [cut for cut in CUTS if "tasks done" not in cut.values]
)
def test_a_topic_has_each_row_once_after_a_cut_at_any_step(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    records: Input,
    step: str,
    survival: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    power = Power(tmp_path, step, monkeypatch)
    target, job = unique_name("out"), unique_name("job")
    create_topic(admin, target)
    write = TopicWrite(brokers=bootstrap, topic=target, job=job)

    def copy() -> None:
        log = BatchLog(power.checkpoint)
        run(stream_into_topic(records.rows(), write, log), power.checkpoint)

    assert CUT in error_of(copy)
    power.back(survival)
    records.add(batches=2)
    copy()
    frame = read_topics(spark, TopicRead(brokers=bootstrap, topics=(target,)))
    found = sorted(int(value) for value in values_in([frame.collect()]))
    assert found == list(range(records.count))


def forget_batches(checkpoint: Path, *numbers: int) -> None:
    """As an older copy of the directory has it."""
    for number in numbers:
        for directory in ("offsets", "commits"):
            (checkpoint / directory / str(number)).unlink()


@pytest.mark.parametrize("forgotten", [(2,), (1, 2)])
def test_a_view_refuses_a_checkpoint_that_is_older(
    records: Input, forgotten: tuple[int, ...], tmp_path: Path
) -> None:
    """Batch 2 is planned again over more records, or batch 1 comes again after batch 2."""
    checkpoint = tmp_path / "checkpoint"
    store = Sqlite().open("counts", ("url",), Home(app="shop", data=tmp_path))
    count_into(store, records, checkpoint)
    with contextlib.closing(store.reader()) as reader:
        before = reader.scan(), reader.position()
    forget_batches(checkpoint, *forgotten)
    records.add(batches=2)
    records.batch_records *= 2
    error = error_of(lambda: count_into(store, records, checkpoint))
    assert "View counts: its job plans batch" in error
    assert "millstream run APP_FILE --rebuild counts" in error
    with contextlib.closing(store.reader()) as reader:
        assert (reader.scan(), reader.position()) == before


def test_a_topic_refuses_a_checkpoint_that_is_older(
    bootstrap: str, admin: AdminClient, records: Input, tmp_path: Path
) -> None:
    target = unique_name("out")
    create_topic(admin, target)
    write = TopicWrite(brokers=bootstrap, topic=target, job=unique_name("job"))
    run(stream_into_topic(records.rows(), write, BatchLog(tmp_path)), tmp_path)
    forget_batches(tmp_path, 2)
    with pytest.raises(PlannedAgain, match=r"its checkpoint is at batch 1, .* holds batch 2"):
        stream_into_topic(records.rows(), write, BatchLog(tmp_path))
