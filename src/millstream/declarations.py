"""From what an application writes to what every part reads: topics and tables as declared values.

`app.topic("clicks", schema="user STRING, at TIMESTAMP", event_time="at", lateness="10 minutes")`
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.base.declared import (
    BadDeclaration,
    DebeziumModes,
    DeclaredTable,
    DeclaredTopic,
    Encoding,
    EventTime,
    LatePolicy,
    LossPolicy,
    ProtobufMessage,
    duration_ms,
)
from millstream.base.schema import Schema
from millstream.schemas.declaration import Declared, schema_of

if TYPE_CHECKING:
    from millstream.schemas.protobuf_message import GivenMessage

Duration = str | int | float
Columns = str | Iterable[str]
NEVER = "never"
# What App.topic calls them, and what EventTime does.
DURATIONS = {
    "lateness": "lateness_ms",
    "keep": "keep_ms",
    "ahead": "ahead_ms_max",
    "idle": "idle_ms",
}


def declared_topic(
    name: str,
    *,
    schema: Declared | None = None,
    key: Columns | None = None,
    event_time: str | None = None,
    encoding: Encoding = "json",
    message: "GivenMessage | None" = None,
    on_loss: LossPolicy = "fail",
    archive: str | Path | None = None,
    partitions: int | None = None,
    **time: Duration | LatePolicy | None,
) -> DeclaredTopic:
    found, described = _settled(schema, message)
    return DeclaredTopic(
        name=name,
        schema=found,
        key=columns(key),
        encoding=encoding,
        message=described,
        event_time=_event_time(name, event_time, time),
        on_loss=on_loss,
        archive=_place(archive),
        partitions=partitions,
    )


def _place(archive: str | Path | None) -> str:
    """A directory is named in full: tasks run elsewhere."""
    if archive is None or "://" in str(archive):
        return str(archive or "")
    return str(Path(archive).expanduser().absolute())


def declared_table(
    name: str,
    *,
    schema: Declared | None = None,
    key: Columns,
    version_time: str | None = None,
    encoding: Encoding = "json",
    message: "GivenMessage | None" = None,
    partitions: int | None = None,
    debezium: Mapping[str, Any] | None = None,
) -> DeclaredTable:
    found, described = _settled(schema, message)
    if found is None:
        raise BadDeclaration(f"table {name} has no schema: give schema=, or message= for Protobuf")
    return DeclaredTable(
        name=name,
        schema=found,
        key=columns(key),
        encoding=encoding,
        message=described,
        version_time=version_time,
        partitions=partitions,
        debezium=_debezium_modes(name, debezium),
    )


def _debezium_modes(table: str, given: Mapping[str, Any] | None) -> DebeziumModes:
    unknown = sorted(set(given or {}) - {"time", "decimal", "units"})
    if unknown:
        raise BadDeclaration(
            f"{table}: debezium= has {', '.join(unknown)}: known are time, decimal and units"
        )
    return DebeziumModes(**(given or {}))


def _settled(
    schema: Declared | None, message: "GivenMessage | None"
) -> tuple[Schema | None, ProtobufMessage | None]:
    """A message of Protobuf brings its schema; one that is given must be readable of it."""
    if message is None:
        return (None if schema is None else schema_of(schema)), None
    from millstream.schemas.protobuf_message import message_of, message_schema  # needs an extra

    described = message_of(message)
    return message_schema(described, schema), described


def columns(given: Columns | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _event_time(name: str, column: str | None, given: dict[str, Any]) -> EventTime | None:
    terms = {term: value for term, value in given.items() if value is not None}
    if column is None:
        if terms:
            raise BadDeclaration(f"{name}: {min(terms)}= needs event_time=, the column of the time")
        return None
    facts = {DURATIONS.get(term, term): _fact(name, term, terms[term]) for term in terms}
    return EventTime(column=column, **facts)


def _fact(name: str, term: str, given: Any) -> Any:
    if term == "idle" and given == NEVER:
        return None
    return duration_ms(given, what=f"{name}: {term}") if term in DURATIONS else given
