"""What an application declares of its topics: their schema, their time, what becomes of the late.

Values that every part agrees on: `app.topic(...)` makes them, the source of a job reads by them,
`app.publish` writes by them. Pure; nothing here knows Spark or a broker.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from millstream.base.errors import Rejected
from millstream.base.quantity import DAY_MS, HOUR_MS, SECOND_MS, parse_duration_ms
from millstream.base.schema import Scalar, Schema

LatePolicy = Literal["drop", "quarantine", "correct"]
LATE_POLICIES = ("drop", "quarantine", "correct")
# "debezium": changes of a table's rows in an envelope, as captures write them; only to be read.
Encoding = Literal["json", "avro", "protobuf", "raw", "debezium"]
ENCODINGS = ("json", "avro", "protobuf", "raw", "debezium")

# How a connector of Debezium was told to write times and decimals, and what a number then counts.
TIME_MODES: Mapping[str, str | None] = {
    "adaptive": "us",
    "adaptive_time_microseconds": "us",
    "connect": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
    "isostring": None,
}
DECIMAL_MODES = ("precise", "double", "string")
TIME_UNITS = ("ms", "us", "ns")

LossPolicy = Literal["fail", "skip"]
LOSS_POLICIES = ("fail", "skip")

LATE_SUFFIX = ".late"


# As Kafka has it; the suffix of the topic of dead letters must fit, too.
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC_NAME_LENGTH_MAX = 249
DECLARED_NAME_LENGTH_MAX = TOPIC_NAME_LENGTH_MAX - len(".dead")


class BadDeclaration(Rejected):
    """A topic, table, job or view that cannot be as it is declared."""


def require_topic_name(name: object) -> None:
    """What a broker would refuse, minutes later."""
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise BadDeclaration(
            f"{name!r} cannot be a topic's name: give letters, digits, '.', '_' and '-'"
        )
    if len(name) > DECLARED_NAME_LENGTH_MAX:
        raise BadDeclaration(
            f"a topic's name of {len(name)} letters: give {DECLARED_NAME_LENGTH_MAX} at most"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """When events of a topic happened, by their own account, and how far that is believed.

    The watermark is the greatest event time seen before this batch, less `lateness_ms`. An event is
    late when no operator of the job can use it any more, such as a window whose end the watermark
    has reached. `late` says what becomes of it. With "correct", results are revised for late events
    as long as their state is kept, `keep_ms`; what comes after that is quarantined. An event more
    than `ahead_ms_max` ahead of the time of its record is no witness of time: a dead letter. A
    source that is read to its end and brings nothing for `idle_ms` is idle: its clock is then the
    wall clock, so that it does not hold back the others; None: it never is.
    """

    column: str
    lateness_ms: int = 10 * SECOND_MS
    late: LatePolicy = "drop"
    keep_ms: int = 7 * DAY_MS
    ahead_ms_max: int = HOUR_MS
    idle_ms: int | None = 10 * SECOND_MS

    def __post_init__(self) -> None:
        for what in ("lateness_ms", "keep_ms", "ahead_ms_max"):
            if getattr(self, what) < 0:
                raise BadDeclaration(f"{what}={getattr(self, what)}: a duration from 0 on")
        if self.idle_ms is not None and self.idle_ms < 1:
            raise BadDeclaration(f"idle_ms={self.idle_ms}: a duration from 1 on, or none")
        if self.late not in LATE_POLICIES:
            raise BadDeclaration(f"late={self.late!r}: one of {', '.join(LATE_POLICIES)}")
        if self.late == "correct" and self.keep_ms < self.lateness_ms:
            raise BadDeclaration(
                f"keep ({self.keep_ms} ms) is shorter than lateness ({self.lateness_ms} ms): state "
                "must be kept at least until an event is late"
            )

    @property
    def watermark_delay_ms(self) -> int:
        """What Spark keeps state for."""
        return self.keep_ms if self.late == "correct" else self.lateness_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufMessage:
    """A message by its full name in `files`, a FileDescriptorSet with all that it imports."""

    name: str
    files: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTopic:
    """A topic of events, by name. Without a schema its columns are the raw ones of a record.

    `on_loss` says what a job does about records that are gone before it read them: it stops with
    an error, or goes on with what is left. `archive` is where such records are kept: a job reads
    them there, as if they were still in the topic.
    """

    name: str
    schema: Schema | None = None
    key: tuple[str, ...] = ()
    encoding: Encoding = "json"
    message: ProtobufMessage | None = None
    event_time: EventTime | None = None
    on_loss: LossPolicy = "fail"
    archive: str = ""
    partitions: int | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_topic_name(self.name)
        require_encoding(self.name, self.encoding, self.message)
        if self.on_loss not in LOSS_POLICIES:
            raise BadDeclaration(
                f"{self.name}: on_loss={self.on_loss!r}: one of {', '.join(LOSS_POLICIES)}"
            )
        require_partitions(self.name, self.partitions)
        require_fields(self.name, self.schema, self.key, what="key")
        if self.event_time is not None:
            require_fields(self.name, self.schema, (self.event_time.column,), what="event_time")
            require_time(self.name, self.schema, self.event_time.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumModes:
    """How values of a topic of Debezium are to be read where its records have no schemas.

    `time`: its `time.precision.mode`, `decimal`: its `decimal.handling.mode`; the defaults are
    Debezium's. `units`: of columns that count something else: a `timestamp(3)` is in "ms" when the
    mode is adaptive.
    """

    time: str = "adaptive"
    decimal: str = "precise"
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_one_of("time", self.time, TIME_MODES)
        require_one_of("decimal", self.decimal, DECIMAL_MODES)
        for unit in self.units.values():
            require_one_of("units", unit, TIME_UNITS)

    def unit_of(self, column: str) -> str | None:
        """Of a timestamp that is a number; None: there are no numbers in this mode."""
        return self.units.get(column, TIME_MODES[self.time])


def require_one_of(what: str, given: str, allowed: Collection[str]) -> None:
    if given not in allowed:
        raise BadDeclaration(f"debezium: {what}={given!r}: one of {', '.join(allowed)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTable:
    """A changelog topic, as a table: the last value of each key is its row, a tombstone none.

    `version_time` is the column that says from when on a row holds, for as-of joins. `debezium`: of
    the encoding of that name. `versions`: the columns that a captured table has had, by version.
    """

    name: str
    schema: Schema
    key: tuple[str, ...]
    encoding: Encoding = "json"
    message: ProtobufMessage | None = None
    version_time: str | None = None
    partitions: int | None = None
    debezium: DebeziumModes = field(default_factory=DebeziumModes)
    options: dict[str, str] = field(default_factory=dict)
    versions: dict[int, Schema] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_topic_name(self.name)
        if not self.key:
            raise BadDeclaration(f"table {self.name} has no key: say which columns name a row")
        require_partitions(self.name, self.partitions)
        require_encoding(self.name, self.encoding, self.message)
        require_fields(self.name, self.schema, self.key, what="key")
        require_fields(self.name, self.schema, tuple(self.debezium.units), what="units")
        if self.debezium != DebeziumModes() and self.encoding != "debezium":
            raise BadDeclaration(
                f"{self.name}: debezium= is of encoding='debezium', and encoding={self.encoding!r}"
            )
        if self.version_time is not None:
            require_fields(self.name, self.schema, (self.version_time,), what="version_time")


def require_encoding(name: str, encoding: str, message: ProtobufMessage | None) -> None:
    if encoding not in ENCODINGS:
        raise BadDeclaration(f"{name}: encoding={encoding!r}: one of {', '.join(ENCODINGS)}")
    if encoding == "protobuf" and message is None:
        raise BadDeclaration(
            f"{name}: encoding='protobuf' needs message=, a generated class, or the file that "
            "`protoc --include_imports -o` wrote with the message's full name"
        )
    if message is not None and encoding != "protobuf":
        raise BadDeclaration(
            f"{name}: message={message.name} is of Protobuf, and encoding={encoding!r} is not: "
            "give encoding='protobuf'"
        )


def require_partitions(name: str, partitions: int | None) -> None:
    if partitions is not None and partitions < 1:
        raise BadDeclaration(f"{name}: partitions={partitions}: a number from 1 on")


def require_time(name: str, schema: Schema | None, column: str) -> None:
    found = schema.field(column) if schema is not None else None
    if found is not None and found.type is not Scalar.TIMESTAMP:
        raise BadDeclaration(
            f"{name}: event_time={column!r} is a {found.type}: declare it as TIMESTAMP"
        )


def require_fields(name: str, schema: Schema | None, wanted: tuple[str, ...], *, what: str) -> None:
    for column in wanted:
        if schema is None:
            raise BadDeclaration(f"{name}: {what}={column!r} needs a schema that has it")
        if schema.field(column) is None:
            known = ", ".join(one.name for one in schema)
            raise BadDeclaration(f"{name}: {what}={column!r} is no field of it ({known})")


def duration_ms(given: str | int | float, *, what: str) -> int:
    """A duration as an application writes it: "10 minutes", "250ms", or seconds as a number."""
    if isinstance(given, int | float):
        return round(given * SECOND_MS)
    try:
        return parse_duration_ms(given)
    except ValueError:
        raise BadDeclaration(
            f"{what}={given!r} is not a duration: write it as '10 minutes', '90s' or '250ms'"
        ) from None
