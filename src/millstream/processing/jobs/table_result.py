"""The result of a job that is made of a table: proven to follow its changes, or refused.

What Spark's operators made of the table is looked at (operators/table_plan.py), then whether the
output names its rows as the table does: under another key, rows that change or go would stay.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.base.errors import Rejected
from millstream.processing.jobs.job import Job, ToTopic, ToView
from millstream.processing.operators.changelog import upserting
from millstream.processing.operators.changelog_columns import BadChangelog
from millstream.processing.operators.table_frames import Carried, carry, require_named
from millstream.processing.operators.table_plan import NotOnTables


class NotATable(Rejected):
    """A job whose result would not follow the changes of its table."""

    def __init__(self, *, job: str, place: str, reason: str) -> None:
        super().__init__(f"job {job} (at {place}): {reason}")
        self.job, self.place, self.reason = job, place, reason


def table_result(job: Job, frame: DataFrame) -> DataFrame:
    """The frame that the job writes, with `_change` and `_order` if it is made of a table."""
    try:
        carried = carry(frame)
        if carried.table is None:
            return frame
        if isinstance(job.output, ToView | ToTopic):
            _require_named(carried, job.output.key)
        return _in_order(job, carried)
    except (NotOnTables, BadChangelog) as error:
        raise NotATable(job=job.name, place=job.place, reason=str(error)) from error


def _require_named(carried: Carried, key: Sequence[str]) -> None:
    """Columns that are not there are the output's to refuse."""
    if key and set(key) <= carried.numbers.keys():
        require_named(carried, key, what="key=")


def _in_order(job: Job, carried: Carried) -> DataFrame:
    """A topic has only the order in which records come: one change of each key in a batch."""
    assert carried.table is not None
    is_loose = carried.table.is_moved and not carried.table.by_value and bool(carried.key)
    if isinstance(job.output, ToTopic) and is_loose:
        return upserting(carried.frame)
    return carried.frame


def require_topic_key(
    job: Job, frame: DataFrame, topics: Mapping[str, DeclaredTopic | DeclaredTable]
) -> None:
    """A topic that takes a table's changes has its key, from the job or from its declaration."""
    if not isinstance(job.output, ToTopic):
        return
    carried = carry(frame)
    if carried.table is None or carried.table.by_value:
        return
    declared = topics.get(job.output.topic)
    key = job.output.key or (declared.key if declared else ())
    try:
        if not key:
            raise BadChangelog(
                f"topic {job.output.topic} has no key, so nothing can be deleted from it. Give the "
                f"job key={list(carried.key)}, or write changelog.events(table) for a history"
            )
        _require_named(carried, key)
    except BadChangelog as error:
        raise NotATable(job=job.name, place=job.place, reason=str(error)) from error
