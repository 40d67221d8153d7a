"""An application that is killed again and again: one view, in each store that is not the default.

    python -m tests.faults.many_stores_app DATA POSTGRES REDIS [staged]

`staged`: batches go into stores that can take them so in parts, from Spark's tasks, though they are
small.
"""

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millstream import App, changelog, stores
from millstream.processing.jobs import supervisor
from millstream.processing.writing import output
from tests.support.thread_dumps import dump_on_signal


def choices(data: str, postgres: str, redis: str) -> dict[str, Any]:
    """By the names of their views."""
    return {
        "in_postgres": stores.Postgres(postgres),
        "in_redis": stores.Redis(redis),
        "in_delta": stores.Delta(Path(data) / "lake"),
        "in_parquet": stores.Parquet(Path(data) / "files"),
        "in_search": stores.SearchIndex(text=["city"]),
        "in_topic": stores.Topic("adults"),
    }


def adults(people: DataFrame) -> DataFrame:
    """Who is gone is none, nor who has become a child again."""
    return changelog.where(people, "age >= 18")


def make_app(data: str, postgres: str, redis: str, *, brokers: str | None = None) -> App:
    app = App("many", data=data, brokers=brokers)
    app.table("people", schema="id BIGINT, city STRING, age BIGINT", key="id", partitions=1)
    for name, store in choices(data, postgres, redis).items():
        app.view(key="id", name=name, store=store)(adults)
    return app


if __name__ == "__main__":
    dump_on_signal()
    # All jobs come to a step of their first batch together, and wait there: none waits for another.
    vars(supervisor)["START_SECONDS_MAX"] = 0.0
    if "staged" in sys.argv:
        vars(output)["STAGED_RECORDS_MIN"] = 1
    with make_app(*sys.argv[1:4]) as app:
        app.run(once=True)
