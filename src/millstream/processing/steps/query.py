"""The job of a script in Spark: one query that goes on from step to step, until it is stopped.

The adapter between Spark and a script's results; camelCase is Spark's.
"""

import threading
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from millstream.base.errors import Rejected
from millstream.processing.steps.gate import Gate, gate_of
from millstream.processing.steps.results import Results, Row

CrashPoint = Literal["before write", "after write"]
CRASH_POINTS = ("before write", "after write")
TURN_SECONDS_MAX = 300.0


class Crashed(Exception):
    """The sink dies, as a script wants it."""


class TurnTooSlow(Rejected):
    def __init__(self, *, job: str) -> None:
        super().__init__(
            f"{job} was still busy after {TURN_SECONDS_MAX:.0f} s. A job with timers of processing "
            "time is never idle, and cannot be tried in steps"
        )
        self.job = job


class StepQuery:
    """Writes a frame into results, turn by turn. A crash ends it; another one goes on."""

    def __init__(
        self, job: str, frame: DataFrame, *, mode: str, checkpoint: Path, results: Results
    ) -> None:
        self._job = job
        self._results = results
        self._crash: CrashPoint | None = None
        self._has_crashed = False
        self._gate = Gate(gate_of(checkpoint))
        self._query = self._start(frame, mode, checkpoint)

    def turn(self, crash: CrashPoint | None = None) -> bool:
        """Process all that is there. True if it crashed on the way, as it was told to."""
        self._crash = crash
        self._gate.open()
        try:
            self._process_all()
        except StreamingQueryException:
            if not self._has_crashed:
                raise
        return self._has_crashed

    def stop(self) -> None:
        self._query.stop()

    def _process_all(self) -> None:
        """Spark waits without a limit: in a thread, so that we need not."""
        errors: list[BaseException] = []

        def process() -> None:
            try:
                self._query.processAllAvailable()
            except BaseException as error:
                errors.append(error)

        waiting = threading.Thread(target=process, daemon=True)
        waiting.start()
        waiting.join(TURN_SECONDS_MAX)
        if waiting.is_alive():
            self._query.stop()
            raise TurnTooSlow(job=self._job)
        if errors:
            raise errors[0]

    def _write(self, batch: DataFrame, number: int) -> None:
        table = batch.toArrow()
        if table.num_rows and self._crash == "before write":
            self._die()
        self._results.write(number, rows_of(table))
        if table.num_rows and self._crash == "after write":
            self._die()

    def _die(self) -> None:
        self._has_crashed = True
        raise Crashed

    def _start(self, frame: DataFrame, mode: str, checkpoint: Path) -> StreamingQuery:
        stream = frame.writeStream.foreachBatch(self._write).outputMode(mode)
        return stream.option("checkpointLocation", str(checkpoint)).start()


def rows_of(table: pa.Table) -> list[Row]:
    rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
    return rows
