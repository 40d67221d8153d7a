"""What to write into which topic, and as whom: as a value, and as Spark's text options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.base.errors import Rejected
from millstream.processing.reading.topic_read import CLIENT_PREFIX

# As for a name of a topic: it becomes part of one.
JOB_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
WRITTEN_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
OPTIONS = ("brokers", "topic", "job", "epoch")
# What Spark hands to a sink of its own accord.
SPARKS_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}


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


def options_of(write: TopicWrite) -> dict[str, str]:
    texts = {name: str(getattr(write, name)) for name in OPTIONS}
    return texts | {CLIENT_PREFIX + name: value for name, value in write.client.items()}


def write_from(options: Mapping[str, str]) -> TopicWrite:
    client = {
        name.removeprefix(CLIENT_PREFIX): text
        for name, text in options.items()
        if name.startswith(CLIENT_PREFIX)
    }
    given = {name: options[name] for name in OPTIONS if name in options}
    unknown = set(options) - set(given) - {CLIENT_PREFIX + name for name in client} - SPARKS_OWN
    if unknown:
        raise BadWrite(f"unknown option {min(unknown)}: known are {', '.join(OPTIONS)}")
    for name in ("brokers", "job", "epoch"):
        if name not in given:
            raise BadWrite(f"{name} is missing: a writer into topics needs {', '.join(OPTIONS)}")
    epoch = int(given.pop("epoch"))
    return TopicWrite(**given, epoch=epoch, client=client)


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
        raise BadWrite("say which topic: with the option `topic`, or a column of that name")
