"""Another user of the machine reads nothing of what Spark puts aside while a job runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_MAX = 110
# A stream with state and a shuffle, and rows that are kept on disk; in each batch the files of this
# Java and of the application are looked at as another user would.
JOB = """
import json, os, stat, sys
from pathlib import Path
from pyspark import StorageLevel
from millstream.processing.jobs.app_session import AppSession

data = Path(sys.argv[1])
opened = AppSession("shop", master="local[2]", settings={}, quick_start=True, log_level="off",
                    **({"scratch": data / "scratch"} if len(sys.argv) < 3 else {}))
spark = opened.session
java = spark._jvm
found = {"files": [], "exposed": [], "temporary": []}

def is_open(path):
    return bool(stat.S_IMODE(path.lstat().st_mode) & 0o077)

def look(*roots):
    for root in roots:
        for path in Path(root).rglob("*"):
            above = [one for one in path.parents if one not in data.parent.parents]
            found["files"].append(path.name)
            if is_open(path) and all(map(is_open, above)) and path.is_file():
                found["exposed"].append(str(path))

def each(batch, number):
    batch.persist(StorageLevel.DISK_ONLY).count()
    local = Path(spark.sparkContext._temp_dir).parents[1]  # Spark's own, where blocks are, too
    look(*local.glob("blockmgr-*"), *local.glob("spark-*"), data, os.environ["TMPDIR"])
    found["temporary"] = java.java.lang.System.getProperty("java.io.tmpdir")

rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).name("r").load()
counts = rows.groupBy((rows.value % 7).alias("n")).count()
writer = counts.writeStream.foreachBatch(each).outputMode("update")
query = writer.option("checkpointLocation", str(data / "jobs")).trigger(once=True).start()
query.awaitTermination()
opened.close()
print(json.dumps(found))
"""


@pytest.mark.full
def test_what_spark_puts_aside_is_in_directories_of_the_owner_alone(tmp_path: Path) -> None:
    data, temporary = tmp_path / "shop.millstream", tmp_path / "tmp"
    for one in (tmp_path, temporary):  # as /tmp is
        one.mkdir(exist_ok=True)
        one.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", JOB, str(data)],
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    found = json.loads(ran.stdout)
    assert any(name.startswith("shuffle_") for name in found["files"])  # the control
    assert any(name.startswith("rdd_") for name in found["files"])
    assert found["exposed"] == []
    assert Path(found["temporary"]).parent == temporary
    # Nothing is left behind: neither of the application nor of Java.
    assert list((data / "scratch").iterdir()) == []
    assert list(temporary.iterdir()) == []
