"""The demo's job: the clicks of a topic, counted on Spark into a view.

`python examples/demo_job.py BOOTSTRAP DATA` runs it over what is there now, batch after batch.
"""

import os
import signal
import subprocess
import sys
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App
from millstream.base.errors import MillstreamError

BATCH_RECORDS = 20_000
PATIENCE_SECONDS = 120.0


def run(bootstrap: str, data: str) -> None:
    with App("clicks", data=data, brokers=bootstrap) as app:
        app.topic("clicks")  # no schema: the columns are a record's own

        @app.view(key="user", records_max=BATCH_RECORDS)
        def clicks_of_users(clicks: DataFrame) -> DataFrame:
            user = F.col("key").cast("string").alias("user")
            return clicks.groupBy(user).agg(F.count("*").alias("clicks"))

        app.run(once=True)


def start(bootstrap: str, data: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, __file__, bootstrap, data]
    environment = os.environ | {"MILLSTREAM_SPARK_QUICK_START": "true"}
    return subprocess.Popen(command, env=environment, start_new_session=True)


def kill_in_the_middle(job: "subprocess.Popen[bytes]", data: str) -> int:
    """kill -9 of the driver, Spark and all, once some clicks are in the view; returns how many."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not counted(data) and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    return sum(counted(data).values())


def counted(data: str) -> dict[str, int]:
    """What the view has; nothing while there is none yet."""
    try:
        rows = App("clicks", data=data).view("clicks_of_users").scan()
        return {row["user"]: row["clicks"] for row in rows}
    except MillstreamError:
        return {}


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2])
