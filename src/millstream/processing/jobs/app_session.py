"""The Spark session of an app: started when it is first needed, stopped only if it was not there.

A program or a test may have a session already; Spark has one per process, and it is used.
"""

from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millstream.processing.session import open_session


class AppSession:
    """Open until it is closed. Of two apps in one process, the first one's settings hold."""

    def __init__(
        self,
        app: str,
        *,
        master: str | None,
        settings: Mapping[str, str],
        quick_start: bool,
        log_level: str,
    ) -> None:
        # It would write what a function raised to stderr, as JSON: the job says it itself.
        PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
        # Not the active session: that is one of this thread.
        self._is_ours = SparkContext._active_spark_context is None
        self.session: SparkSession = open_session(
            app, master=master, settings=settings, quick_start=quick_start, log_level=log_level
        )

    def close(self) -> None:
        if self._is_ours:
            self.session.stop()
