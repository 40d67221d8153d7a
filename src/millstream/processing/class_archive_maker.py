"""Makes the archive of Spark's classes: `python -m millstream.processing.class_archive_maker`.

Runs a session that does a little of what jobs do; Java writes what it loaded when it ends. Takes
some seconds, once, and 100 to 200 MB of the user's cache. Where it cannot be made, all works
without it.
"""

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.processing.class_archive import (
    archive_path,
    is_whole,
    make_options,
    size_path,
)
from millstream.processing.java import find_java
from millstream.processing.session import java_options, open_session

# Java writes the archive after all else; a crowded machine takes its time.
WRITTEN_WITHIN_SECONDS = 300.0


def main() -> None:
    archive = archive_path(find_java())
    if is_whole(archive):
        return
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        make(archive)
    except OSError as error:
        print(f"Spark starts without an archive of its classes: {error}")


def make(archive: Path) -> None:
    """Beside its place first, and put there when it is whole."""
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="making-") as directory:
        made = Path(directory, archive.name)
        run_session(f"{java_options(quick_start=True, log_level='off')} {make_options(made)}")
        if made.exists():
            put(made, archive)


def put(made: Path, archive: Path) -> None:
    """On disk first: an archive that a power cut has torn would end every Java that maps it."""
    with made.open("rb") as written:
        os.fsync(written.fileno())
    size_path(archive).unlink(missing_ok=True)
    os.replace(made, archive)
    size_path(archive).write_text(str(archive.stat().st_size))


def run_session(options: str) -> None:
    settings = {"spark.driver.extraJavaOptions": options}
    session = open_session("class-archive", master="local[1]", settings=settings)
    exercise(session)
    gateway = session.sparkContext._gateway
    assert gateway is not None  # the session is running
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends when nobody can speak to it
    gateway.proc.wait(WRITTEN_WITHIN_SECONDS)


def exercise(session: SparkSession) -> None:
    """A batch, and a stream with state."""
    session.range(100).selectExpr("id % 3 AS n").groupBy("n").count().collect()
    with tempfile.TemporaryDirectory(prefix="millstream-classes-") as checkpoint:
        rates = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        counts = rates.name("rates").load().groupBy("value").count()
        writer = counts.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", checkpoint).trigger(once=True).start()
        query.awaitTermination()


if __name__ == "__main__":
    main()
