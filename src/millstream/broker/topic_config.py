"""Topic configuration in Kafka's words: which names there are, what they allow, what they mean.

Pure. A topic's own values (overrides) win over the broker's, which win over Kafka's defaults.
Names that cannot act on one node are accepted where clients set them as a matter of course, and
say so; anything else unknown is refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from millstream.base.errors import Rejected
from millstream.broker.config import BrokerConfig
from millstream.log.config import INT64_MAX, LogConfig

INT32_MAX = (1 << 31) - 1
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")


class InvalidConfig(Rejected):
    def __init__(self, *, name: str, value: str | None, reason: str) -> None:
        super().__init__(f"config {name}={value!r}: {reason}")
        self.name, self.value, self.reason = name, value, reason


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One configuration name. `broker_name` is what sets the default for all topics."""

    name: str
    type: ConfigType
    default: str
    check: Callable[[str], str | None]  # what is wrong with a value, or None
    help: str
    broker_name: str | None = None


def _number(low: int, high: int = INT64_MAX) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        if not WHOLE_NUMBER.fullmatch(value):  # int() reads more than clients do: "1_000", " 1"
            return "must be a whole number"
        return None if low <= int(value) <= high else f"must be from {low} to {high}"

    return check


def _fraction(value: str) -> str | None:
    try:
        return None if 0 <= float(value) <= 1 else "must be from 0 to 1"
    except ValueError:
        return "must be a number"


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda value: None if value in allowed else f"must be {' or '.join(allowed)}"


def _cleanup_policy(value: str) -> str | None:
    words = [word.strip() for word in value.split(",")]
    if words and all(word in ("delete", "compact") for word in words):
        return None
    return "must be delete, compact or both"


_boolean = _one_of("true", "false")
_NO_EFFECT = "accepted; without effect on a single node"
_T = ConfigType


def _key(
    name: str,
    type_: ConfigType,
    default: str,
    check: Callable[[str], str | None],
    help_: str,
    broker_name: str | None = None,
) -> tuple[str, ConfigKey]:
    key = ConfigKey(
        name=name, type=type_, default=default, check=check, help=help_, broker_name=broker_name
    )
    return name, key


_DAY_MS = 24 * 3600 * 1000

TOPIC_CONFIGS: Mapping[str, ConfigKey] = dict(
    [
        _key(
            "cleanup.policy",
            _T.LIST,
            "delete",
            _cleanup_policy,
            "delete: old segments go by time and size; compact: old values of a key go",
            "log.cleanup.policy",
        ),
        _key(
            "retention.ms",
            _T.LONG,
            str(7 * _DAY_MS),
            _number(-1),
            "records older than this may be deleted; -1: never",
            "log.retention.ms",
        ),
        _key(
            "retention.bytes",
            _T.LONG,
            "-1",
            _number(-1),
            "bytes a partition keeps at least before it deletes; -1: no limit",
            "log.retention.bytes",
        ),
        _key(
            "segment.bytes",
            _T.INT,
            str(1 << 30),
            _number(14, INT32_MAX),
            "a segment is closed before it grows past this",
            "log.segment.bytes",
        ),
        _key(
            "segment.ms",
            _T.LONG,
            str(7 * _DAY_MS),
            _number(1),
            "a segment is closed when it is this old",
            "log.roll.ms",
        ),
        _key(
            "segment.index.bytes",
            _T.INT,
            str(10 << 20),
            _number(4, INT32_MAX),
            "a segment is closed when its index is this large",
            "log.index.size.max.bytes",
        ),
        _key(
            "index.interval.bytes",
            _T.INT,
            "4096",
            _number(0, INT32_MAX),
            "one index entry for about this many bytes",
            "log.index.interval.bytes",
        ),
        _key(
            "max.message.bytes",
            _T.INT,
            "1048588",
            _number(0, INT32_MAX),
            "the largest batch a producer may send",
            "message.max.bytes",
        ),
        _key(
            "message.timestamp.type",
            _T.STRING,
            "CreateTime",
            _one_of("CreateTime", "LogAppendTime"),
            "whose clock stamps records: the producer's or the broker's",
            "log.message.timestamp.type",
        ),
        _key(
            "message.timestamp.before.max.ms",
            _T.LONG,
            str(INT64_MAX),
            _number(0),
            "how far a record's timestamp may lie in the past",
            "log.message.timestamp.before.max.ms",
        ),
        _key(
            "message.timestamp.after.max.ms",
            _T.LONG,
            "3600000",
            _number(0),
            "how far a record's timestamp may lie in the future",
            "log.message.timestamp.after.max.ms",
        ),
        _key(
            "flush.messages",
            _T.LONG,
            "1",
            _number(1),
            "1: acknowledged means synced; more: synced after so many records, acknowledged before",
            "log.flush.interval.messages",
        ),
        _key(
            "flush.ms",
            _T.LONG,
            str(INT64_MAX),
            _number(0),
            "with flush.messages above 1: synced at least this often",
            "log.flush.interval.ms",
        ),
        _key(
            "compression.type",
            _T.STRING,
            "producer",
            _one_of("producer"),
            "batches keep the producer's codec",
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _T.DOUBLE,
            "0.5",
            _fraction,
            "a log is compacted when more than this part of it was not yet",
            "log.cleaner.min.cleanable.ratio",
        ),
        _key(
            "min.compaction.lag.ms",
            _T.LONG,
            "0",
            _number(0),
            "records younger than this are not compacted",
            "log.cleaner.min.compaction.lag.ms",
        ),
        _key(
            "max.compaction.lag.ms",
            _T.LONG,
            str(INT64_MAX),
            _number(1),
            "records older than this are compacted whatever the ratio",
            "log.cleaner.max.compaction.lag.ms",
        ),
        _key(
            "delete.retention.ms",
            _T.LONG,
            str(_DAY_MS),
            _number(0),
            "how long a compacted log still shows that a key was deleted",
            "log.cleaner.delete.retention.ms",
        ),
        _key("min.insync.replicas", _T.INT, "1", _number(1, INT32_MAX), _NO_EFFECT),
        _key("unclean.leader.election.enable", _T.BOOLEAN, "false", _boolean, _NO_EFFECT),
        _key("preallocate", _T.BOOLEAN, "false", _boolean, _NO_EFFECT),
        _key("file.delete.delay.ms", _T.LONG, "60000", _number(0), _NO_EFFECT),
        _key("segment.jitter.ms", _T.LONG, "0", _number(0), _NO_EFFECT),
    ]
)

TOPIC_NAME_OF_BROKER_NAME: Mapping[str, str] = {
    key.broker_name: name for name, key in TOPIC_CONFIGS.items() if key.broker_name
}


def check_topic_config(name: str, value: str | None) -> str:
    """The value, if the topic config `name` may have it; else InvalidConfig says why not."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        raise InvalidConfig(name=name, value=value, reason="there is no such topic config")
    if value is None:
        raise InvalidConfig(name=name, value=value, reason="a value is required")
    reason = key.check(value)
    if reason is not None:
        raise InvalidConfig(name=name, value=value, reason=reason)
    return value


def check_broker_config(name: str, value: str | None) -> str:
    """The value, if the broker config `name` may be changed to it while the broker runs."""
    topic_name = TOPIC_NAME_OF_BROKER_NAME.get(name)
    if topic_name is None:
        reason = "this broker config does not exist or cannot be changed while it runs"
        raise InvalidConfig(name=name, value=value, reason=reason)
    return check_topic_config(topic_name, value)


def broker_defaults(config: BrokerConfig) -> dict[str, str]:
    """What the broker's settings say about topics that say nothing themselves."""
    return {
        "retention.ms": str(config.retention_ms),
        "retention.bytes": str(config.retention_bytes),
        "segment.bytes": str(config.segment_bytes),
        "segment.ms": str(config.segment_ms),
        "max.message.bytes": str(config.message_bytes_max),
        "flush.messages": str(config.flush_messages),
        "flush.ms": str(config.flush_ms),
    }


def log_config(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> LogConfig:
    """The limits of a topic's logs, from its own values and the broker's."""

    def value(name: str) -> str:
        return overrides.get(name) or defaults.get(name) or TOPIC_CONFIGS[name].default

    def number(name: str) -> int:
        return int(value(name))

    policy = [word.strip() for word in value("cleanup.policy").split(",")]
    is_compacted = "compact" in policy
    lag_max_ms = number("max.compaction.lag.ms")
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        # What is in the growing segment cannot be compacted: it must not grow for longer.
        segment_ms=min(number("segment.ms"), lag_max_ms) if is_compacted else number("segment.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        deletes_old_segments="delete" in policy,
        is_compacted=is_compacted,
        dirty_ratio_min=float(value("min.cleanable.dirty.ratio")),
        compaction_lag_min_ms=number("min.compaction.lag.ms"),
        compaction_lag_max_ms=lag_max_ms,
        delete_retention_ms=number("delete.retention.ms"),
        message_bytes_max=number("max.message.bytes"),
        is_log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
    )
