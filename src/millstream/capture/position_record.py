"""What is known of captures, as keys and values of compacted topics. Pure.

In `_captures` is what people want, written by commands and applications, one record at a time:

    ["definition", name]               what the capture was told (definition.py)
    ["control", name]                  what is wanted of it: paused, dropped, tables to be reloaded

In `_captures.<name>` is what the capture did, written by its run, in Kafka transactions:

    ["position", name]                 how far the changes of the database are in the topics
    ["schema", name, table, version]   the columns and the key of a table, as of this version
    ["load", name, table]              how far the initial load of a table is (load/)
    ["status", name]                   how it was a few seconds ago (status.py)

Position, schemas and loads are in one transaction with the rows that they are about: so the last
committed ones say exactly what is in the topics. Nobody else writes there, as a reader of what is
committed waits for a transaction that another writer left open. docs/formats/captures.md.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millstream.base.errors import Corrupt
from millstream.base.schema import Field, Struct
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.definition import CaptureDefinition
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json

TOPIC = "_captures"
RUN_TOPIC_PREFIX = f"{TOPIC}."
WANTED_KINDS = ("definition", "control")  # of records in `_captures`; all others are of runs
ALL_TABLES = "*"  # in requests to reload

Note = tuple[bytes, bytes | None]  # key and value of one record


def run_topic(capture: str) -> str:
    """Where the runs of a capture keep what they did."""
    return f"{RUN_TOPIC_PREFIX}{capture}"


class DamagedCaptureRecord(Corrupt):
    def __init__(self, *, topic: str, key: bytes, reason: str) -> None:
        super().__init__(
            f"{topic}: the record {key!r} is not what a capture writes ({reason}). Who wrote it?"
        )
        self.topic, self.key, self.reason = topic, key, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """`resume`: where the database's log is to be read from. `reloads`: requests that were taken
    up, by table. `commit` and `at_ms` tell of the last transaction that was written."""

    resume: str
    commit: str = ""
    at_ms: int = 0
    reloads: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What is wanted. A reload is known by its request, so that it is done once."""

    is_paused: bool = False
    is_dropped: bool = False
    reloads: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CaptureRecords:
    """All that is kept of one capture. `loads` and `status` are as their owners wrote them."""

    definition: CaptureDefinition | None = None
    control: Control = field(default_factory=Control)
    position: Position | None = None
    schemas: dict[tuple[str, int], CapturedTable] = field(default_factory=dict)
    loads: dict[str, str] = field(default_factory=dict)
    status: dict[str, Any] | None = None

    @property
    def tables(self) -> dict[str, CapturedTable]:
        """The newest version of each."""
        return {name: table for (name, _), table in sorted(self.schemas.items(), key=_by_version)}


def _by_version(item: tuple[tuple[str, int], CapturedTable]) -> tuple[str, int]:
    return item[0]


def is_asked_anew(control: Control, position: Position | None) -> bool:
    """Whether there is a request to reload all that was not taken up yet."""
    taken = position.reloads if position is not None else {}
    return control.reloads.get(ALL_TABLES) != taken.get(ALL_TABLES)


class CaptureBook:
    """The records of all captures, folded: the last one of a key counts.

    Each kind counts in its own topic only. More users may write `_captures` than the topic of one
    capture, and what they write there must not pass for what a run did.
    """

    def __init__(self) -> None:
        self.captures: dict[str, CaptureRecords] = {}

    def apply(self, topic: str, key: bytes, value: bytes | None) -> None:
        try:
            kind, name, *rest = json.loads(key)
            if topic == (TOPIC if kind in WANTED_KINDS else run_topic(name)):
                records = self.captures.setdefault(name, CaptureRecords())
                _apply(records, name, kind, rest, value)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DamagedCaptureRecord(topic=topic, key=key, reason=reason) from None

    def of(self, name: str) -> CaptureRecords:
        return self.captures.get(name, CaptureRecords())

    def defined(self) -> Iterator[tuple[str, CaptureRecords]]:
        for name, records in sorted(self.captures.items()):
            if records.definition is not None:
                yield name, records


def _apply(
    records: CaptureRecords, name: str, kind: str, rest: list[Any], value: bytes | None
) -> None:
    match kind, rest:
        case "definition", []:
            records.definition = _definition_from(value, name) if value else None
        case "control", []:
            records.control = _control_from(json.loads(value)) if value else Control()
        case "position", []:
            records.position = Position(**json.loads(value)) if value else None
        case "schema", [table, version]:
            _set(records.schemas, (table, version), table_from_json(value) if value else None)
        case "load", [table]:
            _set(records.loads, table, value.decode() if value else None)
        case "status", []:
            records.status = json.loads(value) if value else None
        # Another kind is of a newer version.


def _set(kept: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        kept.pop(key, None)
    else:
        kept[key] = value


def _definition_from(value: bytes, name: str) -> CaptureDefinition:
    """By the key's name, whatever the value says: slots and topics are called after it."""
    return replace(CaptureDefinition.from_json(value), name=name)


def _control_from(found: dict[str, Any]) -> Control:
    return Control(
        is_paused=bool(found.get("is_paused")),
        is_dropped=bool(found.get("is_dropped")),
        reloads=dict(found.get("reloads", {})),
    )


def definition_note(definition: CaptureDefinition) -> Note:
    return _key("definition", definition.name), definition.to_json().encode()


def control_note(capture: str, control: Control) -> Note:
    return _key("control", capture), _json(asdict(control))


def position_note(capture: str, position: Position) -> Note:
    return _key("position", capture), _json(asdict(position))


def schema_note(capture: str, table: CapturedTable) -> Note:
    return _key("schema", capture, table.name, table.version), table_to_json(table)


def load_note(capture: str, table: str, state: str | None) -> Note:
    return _key("load", capture, table), None if state is None else state.encode()


def status_note(capture: str, status: Mapping[str, Any]) -> Note:
    return _key("status", capture), _json(status)


def forgetting_notes(capture: str, records: CaptureRecords) -> Iterator[Note]:
    """A tombstone for each record of its runs."""
    yield _key("position", capture), None
    yield _key("status", capture), None
    for table, version in records.schemas:
        yield _key("schema", capture, table, version), None
    for table in records.loads:
        yield _key("load", capture, table), None


def unwanted_notes(capture: str) -> list[Note]:
    """A tombstone for each record of what was wanted of it."""
    return [(_key("control", capture), None), (_key("definition", capture), None)]


def table_to_json(table: CapturedTable) -> bytes:
    return _json(
        {
            "name": table.name,
            "topic": table.topic,
            "version": table.version,
            "key": list(table.key),
            "columns": [_column_to_json(column) for column in table.columns],
        }
    )


def table_from_json(text: bytes) -> CapturedTable:
    found = json.loads(text)
    return CapturedTable(
        name=found["name"],
        topic=found["topic"],
        version=found["version"],
        key=tuple(found["key"]),
        columns=tuple(map(_column_from_json, found["columns"])),
    )


def _column_to_json(column: CapturedColumn) -> dict[str, Any]:
    """As Spark writes a field. One at a time: names of a database's columns may differ in case."""
    alone = Struct((Field(column.name, column.type, column.is_nullable),))
    as_field: dict[str, Any] = schema_to_spark_json(alone)["fields"][0]
    return as_field | {"database_type": column.database_type}


def _column_from_json(found: Mapping[str, Any]) -> CapturedColumn:
    (alone,) = schema_from_spark_json({"type": "struct", "fields": [found]})
    return CapturedColumn(
        name=alone.name,
        database_type=found["database_type"],
        type=alone.type,
        is_nullable=alone.nullable,
    )


def _key(*parts: str | int) -> bytes:
    return _json(list(parts))


def _json(found: Any) -> bytes:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
