"""What to read of which topics, and how: as a value, and as the text options that Spark carries."""

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from millstream.base.declared import EventTime
from millstream.base.errors import Rejected
from millstream.processing.reading.places import AtOffsets, Place, parse_place, place_text
from millstream.values.decoder import Decoder

RAW_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
# Raw columns beside decoded ones: `_offset` cannot be a field of an application by accident.
RAW_PREFIX = "_"
# Options that are librdkafka's: kafka.security.protocol and the like.
CLIENT_PREFIX = "kafka."


class BadReadOption(Rejected):
    def __init__(self, *, option: str, found: object, wanted: str) -> None:
        super().__init__(f"{option}={found!r}: {wanted}")
        self.option, self.found, self.wanted = option, found, wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """Topics by name or by pattern, from `starting` up to `ending`.

    Without a decoder the columns are the raw ones of `columns`. With one they are the decoder's,
    and those of `columns` with an underscore in front; none unless asked for.

    `records_max` and `bytes_max` bound a batch of a stream. Bytes are an estimate: records are
    counted by their offsets, and weighed by a sample. `tasks_min` splits large partitions of a
    batch read. `on_loss` "skip" goes on where retention or a deletion has left off; `on_bad` "dead"
    sends a value that cannot be decoded to `<topic>.dead`, "fail" stops, "skip" passes over it.

    `table_key` makes changes of a table of the records (`table_rows.py`). `event_time` has every
    row judged by its time (`lateness.py`), against the watermark that the stream's `checkpoint`
    tells, and by what the job's operators can use (`uses_file`, `last_use.py`). `beats` adds the
    column `_beat`, and rows that only tell the time. `job`, `run` (of that checkpoint) and `source`
    (of that job) name what was counted. `archive` is a place where records are kept that retention
    has deleted (`archived_records.py`).
    """

    brokers: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    starting: "Place | datetime | str" = "earliest"
    ending: "Place | datetime | str" = "latest"
    read_committed: bool = True
    records_max: int | None = None
    bytes_max: int | None = None
    tasks_min: int = 1
    columns: tuple[str, ...] | None = None
    decoder: Decoder | None = None
    on_loss: str = "fail"
    on_bad: str = "dead"
    job: str = ""
    table_key: tuple[str, ...] = ()
    event_time: EventTime | None = None
    beats: bool = False
    checkpoint: str = ""
    uses_file: str = ""
    run: str = ""
    source: str = ""
    archive: str = ""
    client: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.pattern):
            found = self.pattern or self.topics
            raise BadReadOption(
                option="topics", found=found, wanted="give either topics or a pattern"
            )
        for name in self.raw_columns:
            _require(name, RAW_COLUMNS, option="columns")
        for name in ("records_max", "bytes_max", "tasks_min"):
            _require_positive(getattr(self, name), option=name)
        _require(self.on_loss, ("fail", "skip"), option="on_loss")
        _require(self.on_bad, ("dead", "fail", "skip"), option="on_bad")
        for option, place in (("starting", self.start), ("ending", self.end)):
            self._require_its_topics(option, place)

    def _require_its_topics(self, option: str, place: Place) -> None:
        """A misspelt topic would be read whole."""
        if isinstance(place, AtOffsets) and self.topics:
            for topic in place.offsets:
                _require(topic, self.topics, option=option)

    @property
    def start(self) -> Place:
        return parse_place(place_text(self.starting), option="starting")

    @property
    def end(self) -> Place:
        return parse_place(place_text(self.ending), option="ending")

    @property
    def raw_columns(self) -> tuple[str, ...]:
        if self.columns is None:
            return RAW_COLUMNS if self.decoder is None else ()
        return self.columns

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The raw columns as the DataFrame calls them."""
        prefix = RAW_PREFIX if self.decoder else ""
        return tuple(prefix + name for name in self.raw_columns)


def _require(found: str, allowed: tuple[str, ...], *, option: str) -> None:
    if found not in allowed:
        raise BadReadOption(option=option, found=found, wanted=f"one of {', '.join(allowed)}")


def _require_positive(found: int | None, *, option: str) -> None:
    if found is not None and found < 1:
        raise BadReadOption(option=option, found=found, wanted="a number from 1 on")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _pickled(decoder: Decoder) -> str:
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(decoder)  # type: ignore[no-untyped-call]  # not typed there
    return base64.b64encode(pickled).decode("ascii")


def _unpickled(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


def _event_time_text(event_time: EventTime) -> str:
    return json.dumps(asdict(event_time))


def _event_time_from(text: str) -> EventTime:
    try:
        return EventTime(**json.loads(text))
    except TypeError:
        raise ValueError(text) from None


# How each option is written into text, and read back.
Codec = tuple[Callable[[Any], str], Callable[[str], Any]]
TEXT: Codec = (str, str)
NUMBER: Codec = (str, int)
NAMES: Codec = (",".join, _names)
TRUTH: Codec = (lambda truth: str(truth).lower(), _truth)
PLACE: Codec = (place_text, str)
OPTIONS: Mapping[str, Codec] = {
    "brokers": TEXT,
    "topics": NAMES,
    "pattern": TEXT,
    "starting": PLACE,
    "ending": PLACE,
    "read_committed": TRUTH,
    "records_max": NUMBER,
    "bytes_max": NUMBER,
    "tasks_min": NUMBER,
    "columns": NAMES,
    "decoder": (_pickled, _unpickled),
    "on_loss": TEXT,
    "on_bad": TEXT,
    "job": TEXT,
    "table_key": (json.dumps, lambda text: tuple(json.loads(text))),  # any name, commas too
    "event_time": (_event_time_text, _event_time_from),
    "beats": TRUTH,
    "checkpoint": TEXT,
    "uses_file": TEXT,
    "run": TEXT,
    "source": TEXT,
    "archive": TEXT,
}


def options_of(read: TopicRead) -> dict[str, str]:
    """As Spark carries it; `read_from` reads it back."""
    given = {name: getattr(read, name) for name in OPTIONS}
    texts = {name: OPTIONS[name][0](value) for name, value in given.items() if value is not None}
    return texts | {CLIENT_PREFIX + name: value for name, value in read.client.items()}


def read_from(options: Mapping[str, str]) -> TopicRead:
    """Options as a program or SQL gives them. An option that is not known is an error."""
    given: dict[str, Any] = {}
    client: dict[str, str] = {}
    for name, text in options.items():
        if name.startswith(CLIENT_PREFIX):
            client[name.removeprefix(CLIENT_PREFIX)] = text
        elif name == "path":  # load("orders") is short for topics=orders
            given["topics"] = _names(text)
        else:
            given[name] = _value(name, text)
    if "brokers" not in given:
        raise BadReadOption(option="brokers", found="", wanted="the address of a broker")
    return TopicRead(**given, client=client)


def _value(name: str, text: str) -> Any:
    if name not in OPTIONS:
        raise BadReadOption(option=name, found=text, wanted=f"known are {', '.join(OPTIONS)}")
    try:
        return OPTIONS[name][1](text)
    except ValueError:
        raise BadReadOption(option=name, found=text, wanted="it cannot be read") from None
