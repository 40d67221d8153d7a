"""An application that is killed again and again: a view of a view, and a view that is rebuilt.

python -m tests.faults.chained_app DATA [rebuild]
"""

import sys

from pyspark.sql import DataFrame

from millstream import App, changelog, windows
from millstream.processing.jobs.checkpoints import JobDirectory
from tests.support.thread_dumps import dump_on_signal

BATCH_RECORDS = 60


def make_app(data: str) -> App:
    app = App("chained", data=data)
    app.topic("moves", schema="number BIGINT, id BIGINT, city STRING, gone BOOLEAN", key="id")

    @app.view(key="id", records_max=BATCH_RECORDS)
    def homes(moves: DataFrame) -> DataFrame:
        """Where each one lives; who is gone lives nowhere."""
        change = "CASE WHEN gone THEN 'delete' ELSE 'upsert' END AS _change"
        return moves.selectExpr("id", "city", change, "number AS _order")

    @app.view(key="city")
    def cities(homes: DataFrame) -> DataFrame:
        return changelog.aggregate(homes, by="city", of={"people": windows.count()})

    return app


def has_begun_anew(app: App) -> bool:
    manifest = JobDirectory(app.data / "jobs" / "homes", job="homes").manifest()
    return manifest is not None and manifest.generation > 1


if __name__ == "__main__":
    dump_on_signal()
    with make_app(sys.argv[1]) as app:
        if "rebuild" in sys.argv:
            anew = [] if has_begun_anew(app) else ["homes"]
            app.jobs.run(once=True, only=["homes"], rebuild=anew, verify=100.0)
        else:
            app.run(once=True, only=["homes"])
            app.run(once=True, only=["cities"])
