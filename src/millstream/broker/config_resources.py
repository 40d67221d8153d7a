"""Configuration as clients see it: entries of a topic, a group or this broker, and changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from millstream.broker.dynamic_config import (
    broker_config_key,
    is_secret,
)
from millstream.broker.group_config_keys import GROUP_CONFIGS
from millstream.broker.handlers import Call
from millstream.broker.node import Node
from millstream.broker.topic_config import (
    TOPIC_CONFIGS,
    TOPIC_NAME_OF_BROKER_NAME,
    ConfigType,
    InvalidConfig,
)
from millstream.broker.topics import OverridesChange

# Resource types and sources, as the protocol numbers them.
TOPIC = 2
BROKER = 4
GROUP = 32
ALL_BROKERS = ""  # a broker's name; here it means the same as the one broker
SOURCE_TOPIC = 1
SOURCE_DYNAMIC_BROKER = 2
SOURCE_ALL_BROKERS = 3
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5
SOURCE_GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One value, where it comes from, and what it would be without that (synonyms)."""

    name: str
    value: str | None
    source: int
    type: int
    help: str
    is_read_only: bool = False
    is_secret: bool = False
    synonyms: tuple[tuple[str, str | None, int], ...] = ()


def describe(call: Call, resource_type: int, name: str) -> Iterable[ConfigEntry]:
    _check_access(call, resource_type, name)
    node = call.node
    if resource_type == TOPIC:
        return _describe_topic(node, node.topics.named(name).overrides)
    if resource_type == GROUP:
        return _describe_group(node, name)
    if name == ALL_BROKERS:
        return _describe_all_brokers(node)
    _check_broker_name(node, name)
    return _describe_broker(node)


def _check_access(call: Call, resource_type: int, name: str) -> None:
    """Raise unless the caller may do to this resource what the API does."""
    if resource_type == TOPIC:
        call.topics.check(name)
    elif resource_type == GROUP:
        call.groups(name)
    else:
        call.permit.check_cluster()


def _describe_topic(node: Node, overrides: Mapping[str, str]) -> Iterable[ConfigEntry]:
    for name, key in TOPIC_CONFIGS.items():
        synonyms = _inherited(node, name)
        if name in overrides:
            synonyms = ((name, overrides[name], SOURCE_TOPIC), *synonyms)
        _, value, source = synonyms[0]
        yield ConfigEntry(
            name=name, value=value, source=source, type=key.type, help=key.help, synonyms=synonyms
        )


def _inherited(node: Node, name: str) -> tuple[tuple[str, str, int], ...]:
    """What a topic has that says nothing itself, nearest first."""
    key = TOPIC_CONFIGS[name]
    broker_name = key.broker_name or name
    found = [(broker_name, key.default, SOURCE_DEFAULT)]
    setting = node.topics.settings.get(name, key.default)
    if setting != key.default:
        found.insert(0, (broker_name, setting, SOURCE_STATIC_BROKER))
    if broker_name in node.topics.broker_overrides:
        value = node.topics.broker_overrides[broker_name]
        found.insert(0, (broker_name, value, SOURCE_DYNAMIC_BROKER))
    return tuple(found)


def _describe_group(node: Node, group_id: str) -> Iterable[ConfigEntry]:
    configs = node.groups.configs
    for name, key in GROUP_CONFIGS.items():
        broker_name, setting = key.broker_name or name, configs.defaults[name]
        synonyms: tuple[tuple[str, str, int], ...] = ((broker_name, key.default, SOURCE_DEFAULT),)
        if setting != key.default:
            synonyms = ((broker_name, setting, SOURCE_STATIC_BROKER), *synonyms)
        if name in configs.of(group_id):
            synonyms = ((name, configs.of(group_id)[name], SOURCE_GROUP), *synonyms)
        _, value, source = synonyms[0]
        yield ConfigEntry(
            name=name,
            value=value,
            source=source,
            type=key.type,
            help=key.help,
            synonyms=synonyms,
        )


def _describe_all_brokers(node: Node) -> Iterable[ConfigEntry]:
    """Only what was changed at run time, as Kafka does."""
    for name in node.topics.broker_overrides:
        yield _changed(node, name, SOURCE_ALL_BROKERS)


def _changed(node: Node, name: str, source: int) -> ConfigEntry:
    """A config of the broker as it was changed; what may be a secret is not shown."""
    key = broker_config_key(name)
    value = None if is_secret(name) else node.topics.broker_overrides[name]
    return ConfigEntry(
        name=name,
        value=value,
        source=source,
        type=key.type,
        help=key.help,
        is_secret=is_secret(name),
        synonyms=((name, value, source),),
    )


def _describe_broker(node: Node) -> Iterable[ConfigEntry]:
    for broker_name, name in TOPIC_NAME_OF_BROKER_NAME.items():
        synonyms = _inherited(node, name)
        _, value, source = synonyms[0]
        yield ConfigEntry(
            name=broker_name,
            value=value,
            source=source,
            type=TOPIC_CONFIGS[name].type,
            help=TOPIC_CONFIGS[name].help,
            synonyms=synonyms,
        )
    for name in node.topics.broker_overrides.keys() - TOPIC_NAME_OF_BROKER_NAME.keys():
        yield _changed(node, name, SOURCE_DYNAMIC_BROKER)
    config = node.config
    fixed: list[tuple[str, object, ConfigType, str]] = [
        ("node.id", config.node_id, ConfigType.INT, "the number of this node"),
        ("broker.id", config.node_id, ConfigType.INT, "the number of this node"),
        ("num.partitions", config.default_partitions, ConfigType.INT, "of a topic created without"),
        (
            "auto.create.topics.enable",
            str(config.auto_create_topics).lower(),
            ConfigType.BOOLEAN,
            "whether a topic is created when a client first names it",
        ),
        ("default.replication.factor", 1, ConfigType.INT, "one node keeps one replica"),
        ("offsets.topic.replication.factor", 1, ConfigType.INT, "one node keeps one replica"),
        ("offsets.topic.num.partitions", 1, ConfigType.INT, "one coordinator needs one"),
        (
            "offsets.retention.minutes",
            config.offsets_retention_ms // 60_000,
            ConfigType.INT,
            "how long offsets outlive their group",
        ),
        (
            "group.initial.rebalance.delay.ms",
            config.group_initial_rebalance_delay_ms,
            ConfigType.INT,
            "how long a new group waits for more members",
        ),
        (
            "group.consumer.session.timeout.ms",
            config.group_consumer_session_timeout_ms,
            ConfigType.INT,
            "after which silence a member of a consumer group is out",
        ),
        (
            "group.consumer.heartbeat.interval.ms",
            config.group_consumer_heartbeat_interval_ms,
            ConfigType.INT,
            "how often members of consumer groups are told to heartbeat",
        ),
        (
            "group.share.session.timeout.ms",
            config.group_share_session_timeout_ms,
            ConfigType.INT,
            "after which silence a member of a share group is out",
        ),
        (
            "group.share.heartbeat.interval.ms",
            config.group_share_heartbeat_interval_ms,
            ConfigType.INT,
            "how often members of share groups are told to heartbeat",
        ),
        (
            "group.share.record.lock.duration.ms",
            config.group_share_record_lock_ms,
            ConfigType.INT,
            "how long a member of a share group may hold a record",
        ),
        ("group.consumer.assignors", "uniform,range", ConfigType.LIST, "the first is the default"),
        (
            "group.consumer.migration.policy",
            "bidirectional",
            ConfigType.STRING,
            "groups change their protocol with their members",
        ),
        ("socket.request.max.bytes", config.frame_bytes_max, ConfigType.INT, "largest request"),
        ("max.connections", config.connections_max, ConfigType.INT, "connections at one time"),
        (
            "max.connections.per.ip",
            config.connections_per_address_max,
            ConfigType.INT,
            "connections of one address",
        ),
        (
            "sasl.enabled.mechanisms",
            ",".join(config.sasl_mechanisms),
            ConfigType.LIST,
            "how clients log in",
        ),
        (
            "connections.max.reauth.ms",
            config.sasl_session_ms,
            ConfigType.LONG,
            "after how long a client must log in again",
        ),
        ("log.dirs", str(node.directory.path), ConfigType.STRING, "where the data is"),
    ]
    for fixed_name, fixed_value, type_, help_ in fixed:
        yield ConfigEntry(
            name=fixed_name,
            value=str(fixed_value),
            source=SOURCE_STATIC_BROKER,
            type=type_,
            help=help_,
            is_read_only=True,
        )


async def change(
    call: Call, resource_type: int, name: str, change_of: OverridesChange, *, validate_only: bool
) -> None:
    """Change the overrides of a resource, if every resulting value is allowed."""
    _check_access(call, resource_type, name)
    node, topics = call.node, call.node.topics
    if resource_type == TOPIC:
        topic = topics.named(name)
        if validate_only:
            topics.changed_overrides(topic, change_of)
        else:
            await topics.change_config(topic, change_of)
        return
    if resource_type == GROUP:
        if validate_only:
            node.groups.configs.changed(name, change_of)
        else:
            await node.groups.change_config(name, change_of)
        return
    if resource_type != BROKER:
        reason = f"configs of resource type {resource_type} are not kept"
        raise InvalidConfig(name=name, value=None, reason=reason)
    if name != ALL_BROKERS:
        _check_broker_name(node, name)
    if validate_only:
        topics.changed_broker_overrides(change_of)
    else:
        await topics.change_broker_config(change_of)


def inherited_list(node: Node, resource_type: int, config_name: str) -> str:
    """What a list has without an override of its own: the start for append and subtract."""
    name = config_name
    if resource_type == BROKER:
        name = TOPIC_NAME_OF_BROKER_NAME.get(config_name, config_name)
    if name not in TOPIC_CONFIGS:
        raise InvalidConfig(name=config_name, value=None, reason="there is no such config")
    if TOPIC_CONFIGS[name].type is not ConfigType.LIST:
        reason = "only a list can be appended to or subtracted from"
        raise InvalidConfig(name=config_name, value=None, reason=reason)
    return _inherited(node, name)[0][1]


def _check_broker_name(node: Node, name: str) -> None:
    if name != str(node.config.node_id):
        reason = f"there is no broker {name!r}, only {node.config.node_id}"
        raise InvalidConfig(name="broker", value=name, reason=reason)
