"""An application that is killed again and again: totals in a view, copies in a topic.

python -m tests.faults.killed_app DATA
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App
from tests.support.thread_dumps import dump_on_signal

BATCH_RECORDS = 60


def make_app(data: str) -> App:
    app = App("killed", data=data)
    app.topic("events", schema="id BIGINT, account STRING, amount BIGINT")

    @app.view(key="account", records_max=BATCH_RECORDS)
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("account").agg(
            F.count("*").alias("events"), F.sum("amount").alias("amount")
        )

    @app.job(to="copies", records_max=BATCH_RECORDS)
    def copies(events: DataFrame) -> DataFrame:
        return events.select("id", (F.col("amount") * 2).alias("double"))

    return app


if __name__ == "__main__":
    dump_on_signal()
    with make_app(sys.argv[1]) as app:
        app.run(once=True)
