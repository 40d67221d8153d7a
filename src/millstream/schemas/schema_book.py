"""What a `_schemas` topic means: the versions of every topic's schema, record by record. Pure.

Every record is a proposal. It counts if it is the next version of its topic and its id is larger
than all before; otherwise it came too late, after somebody else's, and is void. All readers see
the same order, and so agree without asking one another. A key is used once, so that compaction
keeps each proposal in its place. The layout is in docs/formats/schemas.md; `schema_topic.py` does
the I/O.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from millstream.base.errors import Corrupt, Rejected
from millstream.base.schema import BadSchema, Schema
from millstream.schemas.compatibility import (
    IncompatibleSchema,
    UnreadableTopic,
    changes_against,
    changes_for_reader,
)
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json

FORMAT = 1


class DamagedSchemaRecord(Corrupt):
    def __init__(self, *, offset: int, problem: str) -> None:
        super().__init__(
            f"_schemas, offset {offset}: not a schema of Millstream ({problem}). Something else "
            "writes to this topic, such as a schema registry: give ours another name with the "
            "setting schemas_topic (MILLSTREAM_SCHEMAS_TOPIC)"
        )
        self.offset, self.problem = offset, problem


class NewerSchemaRecord(Rejected):
    def __init__(self, *, offset: int, format: int) -> None:
        super().__init__(
            f"_schemas, offset {offset} has format {format}, this version reads up to {FORMAT}: "
            "upgrade millstream"
        )
        self.offset, self.format = offset, format


class OtherEncoding(Rejected):
    def __init__(self, *, topic: str, version: int, old: str, new: str) -> None:
        super().__init__(
            f"topic {topic}: version {version} is encoded as {old}, not as {new}: write {new} to "
            "a new topic, or begin anew if no reader needs the old records"
        )
        self.topic, self.version, self.old, self.new = topic, version, old, new


class NoSchema(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"topic {topic} has no schema yet: declare one")
        self.topic = topic


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """`id` is unique among all topics; `version` counts from 1 in one topic.

    `definition` is what the encoding needs beside the schema (Avro's own schema, Protobuf's
    descriptors). A version that begins anew owes nothing to those before it.
    """

    id: int
    topic: str
    version: int
    schema: Schema
    encoding: str = "json"
    definition: str = ""
    begins_anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A version that somebody wants; `name` is unique, and tells it from others of the kind."""

    wanted: SchemaVersion
    name: str

    def to_record(self) -> tuple[bytes, bytes]:
        wanted = self.wanted
        key = {"topic": wanted.topic, "version": wanted.version, "proposal": self.name}
        value = {
            "format": FORMAT,
            "id": wanted.id,
            "encoding": wanted.encoding,
            "definition": wanted.definition,
            "begins_anew": wanted.begins_anew,
            "schema": schema_to_spark_json(wanted.schema),
        }
        return json.dumps(key).encode(), json.dumps(value).encode()

    @classmethod
    def from_record(cls, key: bytes, value: bytes, *, offset: int) -> Self:
        try:
            identity, content = json.loads(key), json.loads(value)
            if content["format"] > FORMAT:
                raise NewerSchemaRecord(offset=offset, format=content["format"])
            return cls(wanted=_version_from_json(identity, content), name=identity["proposal"])
        except (ValueError, KeyError, TypeError, BadSchema) as error:
            problem = f"{type(error).__name__}: {error}"
            raise DamagedSchemaRecord(offset=offset, problem=problem) from None


def _version_from_json(identity: Mapping[str, Any], content: Mapping[str, Any]) -> SchemaVersion:
    return SchemaVersion(
        id=int(content["id"]),
        topic=str(identity["topic"]),
        version=int(identity["version"]),
        schema=schema_from_spark_json(content["schema"]),
        encoding=str(content["encoding"]),
        definition=str(content["definition"]),
        begins_anew=bool(content["begins_anew"]),
    )


class SchemaBook:
    """The versions that count. Grows by `apply`, record by record in the order of the topic."""

    def __init__(self) -> None:
        self._by_id: dict[int, SchemaVersion] = {}
        self._by_topic: dict[str, list[SchemaVersion]] = {}
        self._accepted: set[str] = set()
        self._last_id = 0

    def apply(self, key: bytes | None, value: bytes | None, *, offset: int) -> None:
        if value is None:  # a void proposal, taken back
            return
        self._apply_proposal(Proposal.from_record(key or b"", value, offset=offset))

    def _apply_proposal(self, proposal: Proposal) -> None:
        wanted = proposal.wanted
        versions = self._by_topic.setdefault(wanted.topic, [])
        if wanted.version == len(versions) + 1 and wanted.id > self._last_id:
            versions.append(wanted)
            self._by_id[wanted.id] = wanted
            self._last_id = wanted.id
            self._accepted.add(proposal.name)

    def accepted(self, proposal: Proposal) -> bool:
        return proposal.name in self._accepted

    def versions(self, topic: str) -> list[SchemaVersion]:
        """All, the oldest first."""
        return list(self._by_topic.get(topic, ()))

    def latest(self, topic: str) -> SchemaVersion:
        versions = self._by_topic.get(topic)
        if not versions:
            raise NoSchema(topic=topic)
        return versions[-1]

    def with_id(self, id: int) -> SchemaVersion | None:
        return self._by_id.get(id)

    def current(self, topic: str) -> list[SchemaVersion]:
        """Those that hold together: since the topic last began anew."""
        versions = self.versions(topic)
        begun = max((n for n, one in enumerate(versions) if one.begins_anew), default=0)
        return versions[begun:]

    def find(self, wanted: SchemaVersion) -> SchemaVersion | None:
        """The same schema, if it is there: an old producer may go on with its version."""
        same = (
            one
            for one in reversed(self.current(wanted.topic))
            if (one.schema, one.encoding, one.definition)
            == (wanted.schema, wanted.encoding, wanted.definition)
        )
        return next(same, None)

    def next_of(self, wanted: SchemaVersion) -> SchemaVersion:
        """`wanted` with the number and id that are due; raises if it may not follow."""
        versions = self.versions(wanted.topic)
        if versions and not wanted.begins_anew:
            _check_follows(versions[-1], wanted)
        return SchemaVersion(
            id=self._last_id + 1,
            topic=wanted.topic,
            version=len(versions) + 1,
            schema=wanted.schema,
            encoding=wanted.encoding,
            definition=wanted.definition,
            begins_anew=wanted.begins_anew,
        )

    def check_reader(self, topic: str, wanted: Schema) -> None:
        """A reader that wants `wanted` gets it of every current record, or an error."""
        latest = self.latest(topic)
        changes = changes_for_reader(latest.schema, wanted)
        if changes:
            raise UnreadableTopic(topic=topic, version=latest.version, changes=changes)


def _check_follows(last: SchemaVersion, wanted: SchemaVersion) -> None:
    if last.encoding != wanted.encoding:
        raise OtherEncoding(
            topic=last.topic, version=last.version, old=last.encoding, new=wanted.encoding
        )
    changes = changes_against(last.schema, wanted.schema)
    if changes:
        raise IncompatibleSchema(topic=last.topic, version=last.version, changes=changes)
