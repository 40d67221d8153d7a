"""What to write into which topic, and as whom."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.base.errors import Rejected

# As for a name of a topic: it becomes part of one.
JOB_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
WRITTEN_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")


class BadWrite(Rejected):
    """The rows, or the options, cannot be written into a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWrite:
    """Rows of `value`, and if they have them `key`, `headers`, `topic`, `partition`, `timestamp`.

    `job` is one name for one output: its receipts are kept under it. `topic` is for rows that do
    not name theirs. `epoch` is the run of the job, as `claim_epoch` gave it.
    """

    brokers: str
    job: str
    topic: str = ""
    epoch: int = 0
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not JOB_NAME.fullmatch(self.job):
            raise BadWrite(
                f"job={self.job!r}: give letters, digits, dots, dashes, underscores; at most 200"
            )


def require_writable(write: TopicWrite, columns: Mapping[str, str]) -> None:
    """Check the columns of the rows, by name and Spark type, before the first batch runs."""
    unknown = set(columns) - set(WRITTEN_COLUMNS)
    if unknown:
        raise BadWrite(
            f"column {min(unknown)} cannot be written into a topic: those are "
            f"{', '.join(WRITTEN_COLUMNS)}. Put the fields into value: "
            'F.to_json(F.struct("*")).alias("value")'
        )
    if "value" not in columns:
        raise BadWrite("rows for a topic need a column `value`")
    for name in ("key", "value"):
        if columns.get(name, "binary") not in ("binary", "string"):
            raise BadWrite(f"column {name} is {columns[name]}: give binary or string")
    if not write.topic and "topic" not in columns:
        raise BadWrite("say which topic: with `topic`, or a column of that name")
