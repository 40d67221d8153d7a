"""Which column of a frame says when its events happened: kept in the frame itself, as metadata.

A frame of a topic with event time carries it, through filters and projections, on streams and on
static frames alike; so an operator needs not be told. Who makes a frame with another time marks it.
Does not judge what is late: that is done at the source (`lateness.py`).
"""

from contextvars import ContextVar

from pyspark.sql import DataFrame

from millstream.base.declared import LatePolicy

EVENT_TIME = "millstream.event_time"
# What becomes of the late, as the topic declares it: beside the mark, on streams.
LATE = "millstream.late"

# The column of the job whose function is being called, for windows that name none.
current_event_time: ContextVar[str | None] = ContextVar("current_event_time", default=None)


def event_time_of(frame: DataFrame) -> str | None:
    """The event-time column of a frame; None when it has none, or more than one (after a join)."""
    marked = [field.name for field in frame.schema if field.metadata.get(EVENT_TIME)]
    return marked[0] if len(marked) == 1 else None


def mark_event_time(frame: DataFrame, column: str, *, late: LatePolicy | None = None) -> DataFrame:
    """The same frame, with `column` as its only event time. What else is noted of a column stays.

    Spark notes its watermarks there too: a column that has one keeps it.
    """
    for field in frame.schema:
        if field.name != column and field.metadata.get(EVENT_TIME):
            others = {key: value for key, value in field.metadata.items() if key != EVENT_TIME}
            frame = frame.withMetadata(field.name, others)
    known = frame.schema[column].metadata
    if known.get(EVENT_TIME):
        return frame
    noted = {EVENT_TIME: True} if late is None else {EVENT_TIME: True, LATE: late}
    return frame.withMetadata(column, known | noted)
