"""The topics: their names, ids, partitions and configuration, kept in an internal topic.

A topic is shown to clients only once its creation is durable, and its files are removed only
once its deletion is. The records of `__millstream_metadata` are JSON (docs/formats/metadata.md).
"""

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.base.disk import DiskFull
from millstream.base.errors import Rejected
from millstream.broker.config import BrokerConfig
from millstream.broker.durable_state import STATE_LOG_CONFIG, DurableState
from millstream.broker.partition import ServedPartition
from millstream.broker.topic_config import (
    TOPIC_NAME_OF_BROKER_NAME,
    broker_defaults,
    check_topic_config,
    log_config,
)
from millstream.log.log_directory import LogDirectory

logger = logging.getLogger(__name__)

METADATA_TOPIC = "__millstream_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC})
# Internal topics have fixed ids, so that they need no record of their own.
INTERNAL_TOPIC_IDS: Mapping[str, bytes] = {
    name: uuid.uuid5(uuid.UUID(int=0), name).bytes for name in INTERNAL_TOPICS
}

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000  # per topic; each has open files

TOPIC_KEY = b"topic/"
BROKER_CONFIG_KEY = b"broker-config/"


class InvalidTopicName(Rejected):
    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"topic name {name[:300]!r}: {reason}")
        self.name, self.reason = name, reason


class UnknownTopic(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist; create it first")
        self.topic = topic


class UnknownTopicId(Rejected):
    def __init__(self, *, topic_id: bytes) -> None:
        super().__init__(f"no topic has the id {topic_id.hex()}; it may have been deleted")
        self.topic_id = topic_id


class UnknownPartition(Rejected):
    def __init__(self, *, topic: str, partition: int, count: int) -> None:
        super().__init__(f"{topic}: no partition {partition}, there are {count}")
        self.topic, self.partition, self.count = topic, partition, count


class TopicExists(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")
        self.topic = topic


class InvalidPartitionCount(Rejected):
    def __init__(self, *, topic: str, count: int, reason: str) -> None:
        super().__init__(f"{topic}: {count} partitions: {reason}")
        self.topic, self.count, self.reason = topic, count, reason


class InternalTopic(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"{topic} is the broker's own topic and cannot be changed or written to")
        self.topic = topic


def check_topic_name(name: str) -> None:
    if not name:
        raise InvalidTopicName(name=name, reason="it is empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(name=name, reason=f"longer than {TOPIC_NAME_LENGTH_MAX} characters")
    if name in (".", ".."):
        raise InvalidTopicName(name=name, reason="'.' and '..' are not allowed")
    if not TOPIC_NAME.fullmatch(name):
        raise InvalidTopicName(name=name, reason="only a-z, A-Z, 0-9, '.', '_' and '-' are allowed")


@dataclass(slots=True)
class Topic:
    """One topic. Partitions are only ever added."""

    name: str
    id: bytes
    overrides: dict[str, str]
    partitions: list[ServedPartition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, number: int) -> ServedPartition:
        if not 0 <= number < len(self.partitions):
            raise UnknownPartition(topic=self.name, partition=number, count=len(self.partitions))
        return self.partitions[number]

    def to_json(self, *, partition_count: int, is_deleting: bool = False) -> bytes:
        content: dict[str, Any] = {
            "id": self.id.hex(),
            "partitions": partition_count,
            "config": self.overrides,
        }
        if is_deleting:
            content["deleting"] = True
        return json.dumps(content, sort_keys=True).encode()


class Topics:
    """Every topic by name and by id. Owned by the broker's loop."""

    def __init__(
        self,
        directory: LogDirectory,
        state: DurableState,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._state = state
        self._now_ms = now_ms
        self.settings = broker_defaults(config)
        self.broker_overrides: dict[str, str] = {}
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._busy: set[str] = set()  # being created, grown or deleted: not to be touched
        self._load()

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def named(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(topic=name)
        return topic

    def with_id(self, topic_id: bytes) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id=topic_id)
        return topic

    def find(self, name: str, topic_id: bytes) -> Topic:
        """By id where the request has one, else by name."""
        return self.with_id(topic_id) if any(topic_id) else self.named(name)

    @property
    def defaults(self) -> dict[str, str]:
        """What topics inherit: the settings, then what was changed at run time."""
        changed = {
            TOPIC_NAME_OF_BROKER_NAME[name]: value for name, value in self.broker_overrides.items()
        }
        return self.settings | changed

    # --- change -------------------------------------------------------------------------------

    def check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise what speaks against creating this topic."""
        check_topic_name(name)
        if name in self._by_name or name in self._busy:
            raise TopicExists(topic=name)
        self._check_collision(name)
        self._check_count(name, partition_count)
        for config_name, value in overrides.items():
            check_topic_config(config_name, value)

    def _check_collision(self, name: str) -> None:
        """Kafka's metric names do not tell '.' from '_', so it refuses names that differ there."""
        flat = name.replace(".", "_")
        for other in self._by_name:
            if other.replace(".", "_") == flat:
                reason = f"differs from topic {other!r} only in '.' and '_'"
                raise InvalidTopicName(name=name, reason=reason)

    def _check_count(self, name: str, count: int) -> None:
        if count < 1:
            raise InvalidPartitionCount(topic=name, count=count, reason="at least 1 is needed")
        if count > PARTITIONS_MAX:
            reason = f"at most {PARTITIONS_MAX} are allowed"
            raise InvalidPartitionCount(topic=name, count=count, reason=reason)

    async def create(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> Topic:
        """Create a topic; returns when its files and its record are durable."""
        self.check_new(name, partition_count, overrides)
        topic = Topic(name, uuid.uuid4().bytes, dict(overrides))
        self._busy.add(name)
        try:
            opened = self._open_partitions(topic, 0, partition_count)
            await self._state.put(
                [(TOPIC_KEY + name.encode(), topic.to_json(partition_count=partition_count))],
                now_ms=self._now_ms(),
            )
        except Exception:
            self._discard(topic, partition_count)
            raise
        finally:
            self._busy.discard(name)
        topic.partitions += opened
        self._show(topic)
        logger.info("topic %s created with %d partitions", name, partition_count)
        return topic

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        """Raise what speaks against this number of partitions."""
        self._check_changeable(topic)
        self._check_count(topic.name, partition_count)
        before = len(topic.partitions)
        if partition_count <= before:
            reason = f"there are {before} already, and they can only become more"
            raise InvalidPartitionCount(topic=topic.name, count=partition_count, reason=reason)

    async def add_partitions(self, topic: Topic, partition_count: int) -> None:
        self.check_growth(topic, partition_count)
        before = len(topic.partitions)
        self._busy.add(topic.name)
        try:
            opened = self._open_partitions(topic, before, partition_count)
            record = topic.to_json(partition_count=partition_count)
            await self._state.put(
                [(TOPIC_KEY + topic.name.encode(), record)], now_ms=self._now_ms()
            )
        finally:
            self._busy.discard(topic.name)
        topic.partitions += opened

    async def delete(self, topic: Topic) -> None:
        """Delete a topic; returns when nothing can bring it back. Its files go right after."""
        self._check_changeable(topic)
        self._busy.add(topic.name)
        key = TOPIC_KEY + topic.name.encode()
        count = len(topic.partitions)
        try:
            await self._state.put_deletion(
                [(key, topic.to_json(partition_count=count, is_deleting=True))],
                now_ms=self._now_ms(),
            )
            self._by_name.pop(topic.name)
            self._by_id.pop(topic.id)
            for partition in topic.partitions:
                partition.close(UnknownTopic(topic=topic.name))
            self._discard(topic, count)
            self._state.put_deletion([(key, None)], now_ms=self._now_ms())
        finally:
            self._busy.discard(topic.name)
        logger.info("topic %s deleted", topic.name)

    async def change_config(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own configuration, which was checked before."""
        self._check_changeable(topic)
        changed = Topic(topic.name, topic.id, dict(overrides))
        record = changed.to_json(partition_count=len(topic.partitions))
        await self._state.put([(TOPIC_KEY + topic.name.encode(), record)], now_ms=self._now_ms())
        topic.overrides = dict(overrides)
        self._apply_config(topic)

    async def change_broker_config(self, overrides: Mapping[str, str]) -> None:
        """Replace what was changed at run time of the defaults of all topics."""
        changes: list[tuple[bytes, bytes | None]] = [
            (BROKER_CONFIG_KEY + name.encode(), None)
            for name in self.broker_overrides
            if name not in overrides
        ]
        changes += [
            (BROKER_CONFIG_KEY + name.encode(), value.encode()) for name, value in overrides.items()
        ]
        if changes:
            await self._state.put(changes, now_ms=self._now_ms())
        self.broker_overrides = dict(overrides)
        for topic in self:
            self._apply_config(topic)

    def delete_records(self, partition: ServedPartition, before_offset: int) -> None:
        """Delete the records below `before_offset`, durably. Works on a full disk too."""
        try:
            self._directory.delete_records(partition.key, before_offset)
        except DiskFull:
            self._directory.release_reserve()
            self._directory.delete_records(partition.key, before_offset)

    def _check_changeable(self, topic: Topic) -> None:
        if topic.is_internal:
            raise InternalTopic(topic=topic.name)
        if topic.name in self._busy or topic.name not in self._by_name:
            raise UnknownTopic(topic=topic.name)

    def _apply_config(self, topic: Topic) -> None:
        if not topic.is_internal:
            config = log_config(topic.overrides, self.defaults)
            for partition in topic.partitions:
                partition.log.config = config

    # --- files --------------------------------------------------------------------------------

    def _open_partitions(self, topic: Topic, first: int, end: int) -> list[ServedPartition]:
        config = log_config(topic.overrides, self.defaults)
        opened = []
        for number in range(first, end):
            key = (topic.name, number)
            log = self._directory.open_partition(
                key, config, topic_id=topic.id, now_ms=self._now_ms()
            )
            opened.append(ServedPartition(key, log))
        return opened

    def _discard(self, topic: Topic, partition_count: int) -> None:
        for number in range(partition_count):
            self._directory.delete_partition((topic.name, number))

    def _show(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    def show_internal(self, name: str, partition: ServedPartition) -> None:
        overrides = {"cleanup.policy": "compact"}
        assert partition.log.config is STATE_LOG_CONFIG
        self._show(Topic(name, INTERNAL_TOPIC_IDS[name], overrides, [partition]))

    def _load(self) -> None:
        """Open what the records name, finish deletions that a crash interrupted."""
        self.show_internal(METADATA_TOPIC, self._state.partition)
        unfinished = []
        for key, value in self._state:
            if key.startswith(BROKER_CONFIG_KEY):
                name = key.removeprefix(BROKER_CONFIG_KEY).decode()
                self.broker_overrides[name] = value.decode()
        for key, value in self._state:
            if key.startswith(TOPIC_KEY):
                content = json.loads(value)
                name = key.removeprefix(TOPIC_KEY).decode()
                topic = Topic(name, bytes.fromhex(content["id"]), content["config"])
                if content.get("deleting"):
                    unfinished.append((key, topic, content["partitions"]))
                else:
                    topic.partitions += self._open_partitions(topic, 0, content["partitions"])
                    self._show(topic)
        for key, topic, count in unfinished:
            self._discard(topic, count)
            self._state.put_deletion([(key, None)], now_ms=self._now_ms())
        self._warn_of_strays()

    def _warn_of_strays(self) -> None:
        """Directories that no record names: leftovers of a creation, or somebody else's."""
        for name, number in self._directory.partitions_on_disk():
            topic = self._by_name.get(name)
            if name in INTERNAL_TOPICS or (topic and number < len(topic.partitions)):
                continue
            if not self._directory.remove_if_empty((name, number)):
                logger.warning(
                    "%s: holds records, but no topic names it; left alone",
                    self._directory.directory_of((name, number)),
                )
