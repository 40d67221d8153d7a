"""The topics: their names, ids, partitions and configuration, kept in an internal topic.

A topic is shown to clients only once its creation is durable, and its files are removed only
once its deletion is. The records of `__millstream_metadata` are JSON (docs/formats/metadata.md).
"""

import asyncio
import contextlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from millstream.base.disk import DiskFull
from millstream.base.errors import Corrupt, MillstreamError, Rejected
from millstream.broker.config import BrokerConfig
from millstream.broker.durable_state import STATE_LOG_CONFIG, DurableState
from millstream.broker.dynamic_config import (
    InvalidBrokerConfig,
    broker_config_key,
    check_broker_config,
)
from millstream.broker.partition import ServedPartition
from millstream.broker.topic_config import (
    TOPIC_CONFIGS,
    TOPIC_NAME_OF_BROKER_NAME,
    broker_defaults,
    check_topic_config,
    log_config,
)
from millstream.log.log_directory import LogDirectory

logger = logging.getLogger(__name__)

METADATA_TOPIC = "__millstream_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
# Internal topics have fixed ids, so that they need no record of their own.
INTERNAL_TOPIC_IDS: Mapping[str, bytes] = {
    name: uuid.uuid5(uuid.UUID(int=0), name).bytes for name in INTERNAL_TOPICS
}

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 10_000  # per topic

# From a configuration to what it shall become.
OverridesChange: TypeAlias = Callable[[dict[str, str]], dict[str, str]]

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
        super().__init__(f"topic {topic!r} already exists")
        self.topic = topic


class InvalidPartitionCount(Rejected):
    def __init__(self, *, topic: str, count: int, reason: str) -> None:
        super().__init__(f"{topic}: {count} partitions: {reason}")
        self.topic, self.count, self.reason = topic, count, reason


class InternalTopic(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"{topic} is the broker's own topic and cannot be changed or written to")
        self.topic = topic


class StrayPartition(Rejected):
    def __init__(self, *, path: Path) -> None:
        super().__init__(
            f"{path}: holds records, and no topic names it; move it away or delete it first"
        )
        self.path = path


class UnreadableRecord(Corrupt):
    def __init__(self, *, topic: str, reason: str) -> None:
        super().__init__(
            f"{METADATA_TOPIC}: the record of topic {topic!r} cannot be read ({reason}); restore "
            "the data directory from a copy"
        )
        self.topic, self.reason = topic, reason


class TooManyPartitions(Rejected):
    def __init__(self, *, topic: str, limit: int) -> None:
        super().__init__(
            f"topic {topic!r} is not created for its first use: there are many partitions already "
            f"(auto_create_partitions_max={limit}); create it (millstream topics create), or raise "
            "the limit"
        )
        self.topic, self.limit = topic, limit


def check_topic_name(name: str) -> None:
    if not name:
        raise InvalidTopicName(name=name, reason="it is empty")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicName(name=name, reason=f"longer than {TOPIC_NAME_LENGTH_MAX} characters")
    if name in (".", ".."):
        raise InvalidTopicName(name=name, reason="'.' and '..' are not allowed")
    if not TOPIC_NAME.fullmatch(name):
        raise InvalidTopicName(name=name, reason="only a-z, A-Z, 0-9, '.', '_' and '-' are allowed")


def _flat(name: str) -> str:
    return name.replace(".", "_")


@contextlib.asynccontextmanager
async def others_in_turn() -> AsyncIterator[None]:
    """A piece of a long work on the disk: afterwards others have the loop for as long as it took.

    A turn of the loop alone would not do. What others ask for takes several, and after each of
    them they would wait for the next piece.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    yield
    await asyncio.sleep(0)  # uvloop looks at the clock once in each turn
    if (spent := loop.time() - started) > 0:
        await asyncio.sleep(spent)


async def _nothing_else(name: str) -> None:
    pass


async def _nobody_else(topic: "Topic") -> None:
    pass


def _nobody_cares(name: str) -> None:
    pass


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
        self._by_flat_name: dict[str, str] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._unfinished: list[str] = []
        # One change at a time: each starts from what the one before it has left.
        self._turn = asyncio.Lock()
        # Who else uses a topic's files: waited for before they are removed.
        self.when_closed: Callable[[Topic], Awaitable[None]] = _nobody_else
        # What else must go with a topic, before its name is free again.
        self.when_deleted: Callable[[str], Awaitable[None]] = _nothing_else
        # Who hands out partitions: told when a topic came, went or grew.
        self.when_changed: Callable[[str], None] = _nobody_cares
        self._load()

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def partition_count(self) -> int:
        """Of all topics, the broker's own among them."""
        return len(self._directory.logs)

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
            TOPIC_NAME_OF_BROKER_NAME[name]: value
            for name, value in self.broker_overrides.items()
            if name in TOPIC_NAME_OF_BROKER_NAME
        }
        return self.settings | changed

    # --- change -------------------------------------------------------------------------------

    def check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        """Raise what speaks against creating this topic."""
        check_topic_name(name)
        if name in self._by_name:
            raise TopicExists(topic=name)
        self._check_collision(name)
        self._check_count(name, partition_count)
        for config_name, value in overrides.items():
            check_topic_config(config_name, value)

    def _check_collision(self, name: str) -> None:
        """Kafka's metric names do not tell '.' from '_', so it refuses names that differ there."""
        other = self._by_flat_name.get(_flat(name))
        if other is not None:
            reason = f"differs from topic {other!r} only in '.' and '_'"
            raise InvalidTopicName(name=name, reason=reason)

    def _check_count(self, name: str, count: int) -> None:
        if count < 1:
            raise InvalidPartitionCount(topic=name, count=count, reason="at least 1 is needed")
        if count > PARTITIONS_MAX:
            reason = f"at most {PARTITIONS_MAX} are allowed"
            raise InvalidPartitionCount(topic=name, count=count, reason=reason)

    async def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        partitions_max: int | None = None,
    ) -> Topic:
        """Create a topic; returns when its files and its record are durable.

        Not if there were more than `partitions_max` of all topics then: counted when its turn
        comes, as others may be created meanwhile.
        """
        async with self._turn:
            self.check_new(name, partition_count, overrides)
            if (
                partitions_max is not None
                and self.partition_count + partition_count > partitions_max
            ):
                raise TooManyPartitions(topic=name, limit=partitions_max)
            topic = Topic(name, uuid.uuid4().bytes, dict(overrides))
            await self._grow(topic, partition_count)
            self._show(topic)
            self.when_changed(name)
        logger.info("topic %s created, partitions: %d", name, partition_count)
        _warn_of_topic_configs(name, overrides, before={})
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
        async with self._turn:
            self.check_growth(topic, partition_count)
            await self._grow(topic, partition_count)
            self.when_changed(topic.name)

    async def _grow(self, topic: Topic, partition_count: int) -> None:
        """Add partitions up to `partition_count`, durably, or nothing."""
        before = len(topic.partitions)
        await self._check_strays(topic.name, before, partition_count)
        try:
            opened = []
            for number in range(before, partition_count):
                async with others_in_turn():  # each needs a few syncs
                    opened += self._open_partitions(topic, number, number + 1)
            self._directory.sync_names()
            await self._put(topic.name, topic.to_json(partition_count=partition_count))
        except MillstreamError:
            for number in range(before, partition_count):
                async with others_in_turn():
                    with contextlib.suppress(MillstreamError):  # what stays is empty, no topic's
                        self._discard(topic.name, number, number + 1)
            raise
        topic.partitions += opened

    async def delete(self, topic: Topic) -> None:
        """Delete a topic; returns when nothing can bring it back, and its files are gone."""
        async with self._turn:
            self._check_changeable(topic)
            count = len(topic.partitions)
            record = topic.to_json(partition_count=count, is_deleting=True)
            await self._put_deletion(topic.name, record)
            self._by_name.pop(topic.name)
            self._by_id.pop(topic.id)
            self._by_flat_name.pop(_flat(topic.name), None)
            self.when_changed(topic.name)
            for partition in topic.partitions:
                partition.close(UnknownTopic(topic=topic.name))
            await self.when_closed(topic)
            for number in range(count):
                async with others_in_turn():  # each takes some file operations
                    self._directory.delete_partition((topic.name, number))
            self._directory.forget_offsets(topic.name)
            await self._finish_deletion(topic.name)

    async def _finish_deletion(self, name: str) -> None:
        """Remove what else there is of a deleted topic, its record last: a crash starts over."""
        await self.when_deleted(name)
        await self._put_deletion(name, None)
        logger.info("topic %s deleted", name)

    async def finish_deletions(self) -> None:
        """Go on with deletions that a crash interrupted. Call it before clients can connect."""
        for name in self._unfinished:
            try:
                await self._finish_deletion(name)
            except MillstreamError as error:
                logger.error("topic %s: its deletion goes on at the next start: %s", name, error)
        self._unfinished.clear()

    def changed_overrides(self, topic: Topic, change: OverridesChange) -> dict[str, str]:
        """What the topic's own configuration would be, if all of it is allowed."""
        self._check_changeable(topic)
        overrides = change(dict(topic.overrides))
        for name, value in overrides.items():
            check_topic_config(name, value)
        return overrides

    async def change_config(self, topic: Topic, change: OverridesChange) -> None:
        """Change the topic's own configuration; returns when that is durable."""
        async with self._turn:
            overrides = self.changed_overrides(topic, change)
            changed = Topic(topic.name, topic.id, overrides)
            await self._put(topic.name, changed.to_json(partition_count=len(topic.partitions)))
            before, topic.overrides = topic.overrides, overrides
            self._apply_config(topic)
        _warn_of_topic_configs(topic.name, overrides, before=before)

    def changed_broker_overrides(self, change: OverridesChange) -> dict[str, str]:
        """What would be changed at run time of the defaults of all topics, if it is allowed."""
        overrides = change(dict(self.broker_overrides))
        return {name: check_broker_config(name, value) for name, value in overrides.items()}

    async def change_broker_config(self, change: OverridesChange) -> None:
        """Change the defaults of all topics; returns when that is durable."""
        async with self._turn:
            overrides = self.changed_broker_overrides(change)
            changes: list[tuple[bytes, bytes | None]] = [
                (BROKER_CONFIG_KEY + name.encode(), None)
                for name in self.broker_overrides
                if name not in overrides
            ]
            changes += [
                (BROKER_CONFIG_KEY + name.encode(), value.encode())
                for name, value in overrides.items()
            ]
            if changes:
                await self._state.put(changes, now_ms=self._now_ms())
            before, self.broker_overrides = self.broker_overrides, overrides
            for topic in self:
                self._apply_config(topic)
        for name in overrides.keys() - before.keys():
            if broker_config_key(name).is_without_effect:
                logger.warning("broker config %s is accepted and has no effect here", name)

    def _put(self, name: str, record: bytes) -> "asyncio.Future[None]":
        return self._state.put([(TOPIC_KEY + name.encode(), record)], now_ms=self._now_ms())

    def _put_deletion(self, name: str, record: bytes | None) -> "asyncio.Future[None]":
        changes = [(TOPIC_KEY + name.encode(), record)]
        return self._state.put_deletion(changes, now_ms=self._now_ms())

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
        if self._by_name.get(topic.name) is not topic:  # deleted while this one waited its turn
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
                key, config, topic_id=topic.id, now_ms=self._now_ms(), must_sync_name=False
            )
            opened.append(ServedPartition(key, log))
        return opened

    async def _check_strays(self, name: str, first: int, end: int) -> None:
        """A new partition must not find the records of another one in its directory."""
        for number in range(first, end):
            async with others_in_turn():
                key = (name, number)
                if self._directory.has(key) and not self._directory.remove_if_empty(key):
                    raise StrayPartition(path=self._directory.directory_of(key))

    def _discard(self, name: str, first: int, end: int) -> None:
        for number in range(first, end):
            self._directory.delete_partition((name, number))
        self._directory.forget_offsets(name)

    def _show(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_flat_name[_flat(topic.name)] = topic.name
        self._by_id[topic.id] = topic

    def show_internal(self, name: str, partition: ServedPartition) -> None:
        overrides = {"cleanup.policy": "compact"}
        assert partition.log.config is STATE_LOG_CONFIG
        self._show(Topic(name, INTERNAL_TOPIC_IDS[name], overrides, [partition]))

    def _load(self) -> None:
        """Open what the records name, finish deletions that a crash interrupted."""
        self.show_internal(METADATA_TOPIC, self._state.partition)
        for key, value in self._state:
            if key.startswith(BROKER_CONFIG_KEY):
                self._load_broker_config(key.removeprefix(BROKER_CONFIG_KEY).decode(), value)
        for key, value in self._state:
            if key.startswith(TOPIC_KEY):
                self._load_topic(key.removeprefix(TOPIC_KEY).decode(), value)
        self._directory.sync_names()
        self._warn_of_strays()

    def _load_broker_config(self, name: str, value: bytes) -> None:
        try:
            self.broker_overrides[name] = check_broker_config(name, value.decode())
        except (InvalidBrokerConfig, UnicodeDecodeError) as error:
            logger.warning("broker config %s is not used: %s", name, error)

    def _load_topic(self, name: str, value: bytes) -> None:
        try:
            content = json.loads(value)
            topic = Topic(name, bytes.fromhex(content["id"]), dict(content["config"]))
            count = int(content["partitions"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableRecord(topic=name, reason=f"{error!r}") from error
        if content.get("deleting"):
            self._go_on_deleting(name, count)
        else:
            topic.partitions += self._open_partitions(topic, 0, count)
            self._show(topic)

    def _go_on_deleting(self, name: str, partition_count: int) -> None:
        try:
            self._discard(name, 0, partition_count)
        except MillstreamError as error:  # no reason not to serve the other topics
            logger.error("topic %s: its deletion goes on at the next start: %s", name, error)
        else:
            self._unfinished.append(name)

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


def _warn_of_topic_configs(
    topic: str, overrides: Mapping[str, str], *, before: Mapping[str, str]
) -> None:
    """Say which of the values have no effect here, unless they are what everybody has."""
    for name, value in overrides.items():
        key = TOPIC_CONFIGS[name]
        if key.is_without_effect and value not in (key.default, before.get(name)):
            logger.warning(
                "topic %s: %s=%s is accepted and has no effect on a single node", topic, name, value
            )
