"""The session: quiet, on loopback, and with this Python in its workers."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from millstream.processing.session import cores_of, everywhere_settings, one_machine_settings

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
LISTENING = "0A"


def listening_addresses(pid: int) -> set[str]:
    """Every address that a process listens on, as the kernel writes it."""
    links = [
        str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()
    ]
    inodes = {link.removeprefix("socket:[").rstrip("]") for link in links if "socket" in link}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[3] == LISTENING and row[9] in inodes}


def test_spark_listens_on_loopback_only(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    addresses = listening_addresses(pid)
    assert addresses
    assert addresses <= LOOPBACK


def test_workers_run_this_python(spark: SparkSession) -> None:
    frame = spark.range(1).mapInArrow(
        lambda batches: (_python_of(batch) for batch in batches), "python string"
    )
    assert frame.first() == (sys.executable,)


def test_workers_use_the_installed_pyspark_and_not_the_zip(spark: SparkSession) -> None:
    frame = spark.range(1).mapInArrow(
        lambda batches: (_pyspark_of(batch) for batch in batches), "file string"
    )
    assert frame.first() == (pyspark.__file__,)


def _pyspark_of(_batch: object) -> object:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})


def _python_of(_batch: object) -> object:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"python": [sys.executable]})


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[2]", 2), ("local[*]", 8), ("local[3, 4]", 3)]
)
def test_a_local_master_says_how_many_tasks_run_at_once(master: str, cores: int) -> None:
    assert cores_of(master, 8) == cores


def test_one_machine_waits_for_its_workers_longer_than_spark_does() -> None:
    """On a busy machine 15 s are not enough for a secret, nor 120 s for a laptop that sleeps."""
    here = one_machine_settings(2)
    assert int(here["spark.python.authenticate.socketTimeout"].removesuffix("s")) >= 120
    assert int(here["spark.network.timeout"].removesuffix("h")) >= 12


def test_a_cluster_keeps_what_is_its_own() -> None:
    for name in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.driver.host"):
        assert name in one_machine_settings(2)
        assert name not in everywhere_settings()


def test_a_batch_falls_into_as_many_tasks_whatever_is_in_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also with adaptive plans, as on a cluster: a task's receipt is known by its number."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    session.conf.set("spark.sql.shuffle.partitions", "5")
    few = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 3)
    spread = few.name("few").load().repartition("value")
    tasks: list[int] = []
    writer = spread.writeStream.foreachBatch(
        lambda batch, _number: tasks.append(batch.rdd.getNumPartitions())
    )
    writer.option("checkpointLocation", str(tmp_path)).trigger(once=True).start().awaitTermination()
    assert tasks == [5]


QUIET = """
from millstream.processing.session import open_session
session = open_session("quiet", master="local[1]", quick_start=True)
session.readStream.format("rate").name("rate").load().writeStream.format("noop").trigger(once=True).start()
session.range(3).count()
session.stop()
"""


@pytest.mark.full
def test_a_session_starts_works_and_stops_without_a_word() -> None:
    ran = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=110)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


QUIET_STATE = """
import sys
from millstream.processing.operators import windows
from millstream.processing.session import open_session
session = open_session("quiet", master="local[1]", quick_start=True)
clicks = session.readStream.schema("user STRING, at TIMESTAMP").name("clicks").json(sys.argv[1])
clicks = clicks.withWatermark("at", "1 minute")
sessions = windows.aggregate(
    clicks, windows.session("10 seconds", on="at"), by="user", of={"n": windows.count()}, slots=1
)
to = sessions.writeStream.format("noop").outputMode("update")
to.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination()
session.stop()
"""


@pytest.mark.full
def test_state_in_python_is_set_up_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "clicks").mkdir()
    line = '{"user": "ada", "at": "2026-07-01T12:00:00Z"}'
    (tmp_path / "clicks" / "one.json").write_text(line)
    command = [sys.executable, "-c", QUIET_STATE, str(tmp_path / "clicks"), str(tmp_path / "state")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
