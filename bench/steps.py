"""Question: how long does a case of a user's tests take, written in steps (`millstream_steps`)?

    python -m bench.steps [--rounds 5]

One Spark session and one broker, as all tests of a project share them. A case makes a script, adds
a row and runs it (the one batch), then twice more (further steps). Counted is the median over the
rounds, and the lowest: on a busy machine that is nearer to what a step costs. The first round warms
Java up and is not counted. "own producer" makes a new idempotent producer for each step, as it was
before: it waits half a second for its id.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import DeclaredTopic, EventTime
from millstream.embedded import Broker
from millstream.processing.operators import windows
from millstream.processing.session import open_session
from millstream.processing.steps.inputs import producer_for
from millstream.processing.steps.stage import Stage
from millstream.schemas.ddl import schema_from_ddl

CLICKS = DeclaredTopic(
    name="clicks",
    schema=schema_from_ddl("user STRING, at TIMESTAMP"),
    event_time=EventTime(column="at", lateness_ms=0),
)
STEPS = 3
GOAL_SECONDS = (3.0, 1.0)


def stateless(clicks: DataFrame) -> DataFrame:
    return clicks.select("user")


def windowed(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n"))


def aggregated(clicks: DataFrame) -> DataFrame:
    return windows.aggregate(clicks, windows.tumbling("1 hour"), of={"n": windows.count()})


JOBS: tuple[Callable[[DataFrame], DataFrame], ...] = (stateless, windowed, aggregated)


@contextlib.contextmanager
def a_stage() -> Iterator[Callable[[], Stage]]:
    session = open_session("bench", master="local[2]", quick_start=True, log_level="off")
    with Broker() as broker, tempfile.TemporaryDirectory() as directory:
        yield lambda: Stage(session, broker.bootstrap, Path(directory))
        session.stop()


def step_seconds(stage: Stage, job: Callable[..., DataFrame], *, own_producer: bool) -> list[float]:
    """Of the first batch, with all that comes before it, and of the steps after it."""
    seconds, began = [], time.perf_counter()
    script = stage(job, inputs=[CLICKS])
    for number in range(STEPS):
        if own_producer:
            producer_for.cache_clear()
        script.add("clicks", {"user": "ada", "at": f"12:0{number}"})
        script.run()
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
    stage.close()
    return seconds


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    rounds = arguments.parse_args().rounds
    cases = [(job, own) for job in JOBS for own in (True, False)]
    found: dict[tuple[str, bool], list[list[float]]] = {}
    with a_stage() as made:
        for number in range(rounds + 1):
            for job, own in cases:
                seconds = step_seconds(made(), job, own_producer=own)
                if number:
                    found.setdefault((job.__name__, own), []).append(seconds)
    print(f"seconds, median [lowest] of {rounds}; goal {GOAL_SECONDS[0]} and {GOAL_SECONDS[1]}")
    for (name, own), runs in found.items():
        first = [run[0] for run in runs]
        later = [one for run in runs for one in run[1:]]
        what = f"{name}, {'own producer' if own else 'shared producer'}"
        print(
            f"{what:32} one batch {median(first):.2f} [{min(first):.2f}]  "
            f"further step {median(later):.2f} [{min(later):.2f}]"
        )


if __name__ == "__main__":
    main()
