"""Topic configuration in Kafka's words: which names there are, what they allow, what they mean.

Pure. A topic's own values (overrides) win over the broker's, which win over Kafka's defaults.
What Kafka has and what cannot act on one node is accepted, and says so (`is_without_effect`);
anything else is refused. Configs of the broker that are no default of topics: dynamic_config.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from millstream.base.errors import Rejected
from millstream.broker.config import BrokerConfig
from millstream.log.config import INT64_MAX, LogConfig
from millstream.log.record_batch import Codec

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

    @property
    def is_without_effect(self) -> bool:
        return self.help == NO_EFFECT


def whole_number(low: int, high: int = INT64_MAX) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        if not WHOLE_NUMBER.fullmatch(value):  # int() reads more than clients do: "1_000", " 1"
            return "must be a whole number"
        return None if low <= int(value) <= high else f"must be from {low} to {high}"

    return check


def fraction(value: str) -> str | None:
    try:
        return None if 0 <= float(value) <= 1 else "must be from 0 to 1"
    except ValueError:
        return "must be a number"


def one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda value: None if value in allowed else f"must be {' or '.join(allowed)}"


def _cleanup_policy(value: str) -> str | None:
    words = [word.strip() for word in value.split(",")]
    if not value.strip() or all(word in ("delete", "compact") for word in words):
        return None
    return "must be delete, compact, both or empty"


def _gzip_level(value: str) -> str | None:
    if whole_number(GZIP_DEFAULT_LEVEL, 9)(value) is None and int(value) != 0:
        return None
    return f"must be from 1 to 9, or {GZIP_DEFAULT_LEVEL} for the usual one"


THROTTLED_REPLICAS = re.compile(r"|\*|\d+:\d+(,\d+:\d+)*")


def _throttled_replicas(value: str) -> str | None:
    if THROTTLED_REPLICAS.fullmatch(value):
        return None
    return "must be * or a list of PARTITION:BROKER, separated by commas"


def _no_tiers(value: str) -> str | None:
    return None if value == "false" else "must be false: there is no tiered storage"


_boolean = one_of("true", "false")
NO_EFFECT = "accepted; without effect on a single node"
# How topics name the codec that their batches are kept in; `producer` is none of them.
CODECS: Mapping[str, Codec] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
LEVELLED = frozenset({"gzip", "lz4", "zstd"})
GZIP_DEFAULT_LEVEL = -1
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

# Of replicas, tiers and files that a single node does not have: name, type, default, check and
# what sets the default for all topics.
_WITHOUT_EFFECT: tuple[tuple[str, ConfigType, str, Callable[[str], str | None], str], ...] = (
    ("min.insync.replicas", _T.INT, "1", whole_number(1, INT32_MAX), "min.insync.replicas"),
    (
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "false",
        _boolean,
        "unclean.leader.election.enable",
    ),
    ("preallocate", _T.BOOLEAN, "false", _boolean, "log.preallocate"),
    ("file.delete.delay.ms", _T.LONG, "60000", whole_number(0), "log.segment.delete.delay.ms"),
    ("segment.jitter.ms", _T.LONG, "0", whole_number(0), "log.roll.jitter.ms"),
    ("leader.replication.throttled.replicas", _T.LIST, "", _throttled_replicas, ""),
    ("follower.replication.throttled.replicas", _T.LIST, "", _throttled_replicas, ""),
    ("remote.storage.enable", _T.BOOLEAN, "false", _no_tiers, ""),
    ("remote.log.copy.disable", _T.BOOLEAN, "false", _boolean, ""),
    ("remote.log.delete.on.disable", _T.BOOLEAN, "false", _boolean, ""),
    ("local.retention.ms", _T.LONG, "-2", whole_number(-2), "log.local.retention.ms"),
    ("local.retention.bytes", _T.LONG, "-2", whole_number(-2), "log.local.retention.bytes"),
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = dict(
    [
        _key(
            "cleanup.policy",
            _T.LIST,
            "delete",
            _cleanup_policy,
            "delete: old segments go by time and size; compact: old values of a key go; empty: "
            "neither, everything stays",  # KIP-1161
            "log.cleanup.policy",
        ),
        _key(
            "retention.ms",
            _T.LONG,
            str(7 * _DAY_MS),
            whole_number(-1),
            "records older than this may be deleted; -1: never",
            "log.retention.ms",
        ),
        _key(
            "retention.bytes",
            _T.LONG,
            "-1",
            whole_number(-1),
            "bytes a partition keeps at least before it deletes; -1: no limit",
            "log.retention.bytes",
        ),
        _key(
            "segment.bytes",
            _T.INT,
            str(1 << 30),
            whole_number(14, INT32_MAX),
            "a segment is closed before it grows past this",
            "log.segment.bytes",
        ),
        _key(
            "segment.ms",
            _T.LONG,
            str(7 * _DAY_MS),
            whole_number(1),
            "a segment is closed when it is this old",
            "log.roll.ms",
        ),
        _key(
            "segment.index.bytes",
            _T.INT,
            str(10 << 20),
            whole_number(4, INT32_MAX),
            "a segment is closed when its index is this large",
            "log.index.size.max.bytes",
        ),
        _key(
            "index.interval.bytes",
            _T.INT,
            "4096",
            whole_number(0, INT32_MAX),
            "one index entry for about this many bytes",
            "log.index.interval.bytes",
        ),
        _key(
            "max.message.bytes",
            _T.INT,
            "1048588",
            whole_number(0, INT32_MAX),
            "the largest batch a producer may send",
            "message.max.bytes",
        ),
        _key(
            "message.timestamp.type",
            _T.STRING,
            "CreateTime",
            one_of("CreateTime", "LogAppendTime"),
            "whose clock stamps records: the producer's or the broker's",
            "log.message.timestamp.type",
        ),
        _key(
            "message.timestamp.before.max.ms",
            _T.LONG,
            str(INT64_MAX),
            whole_number(0),
            "how far a record's timestamp may lie in the past",
            "log.message.timestamp.before.max.ms",
        ),
        _key(
            "message.timestamp.after.max.ms",
            _T.LONG,
            "3600000",
            whole_number(0),
            "how far a record's timestamp may lie in the future",
            "log.message.timestamp.after.max.ms",
        ),
        _key(
            "flush.messages",
            _T.LONG,
            "1",
            whole_number(1),
            "1: acknowledged means synced; more: synced after so many records, acknowledged before",
            "log.flush.interval.messages",
        ),
        _key(
            "flush.ms",
            _T.LONG,
            str(INT64_MAX),
            whole_number(0),
            "with flush.messages above 1: synced at least this often",
            "log.flush.interval.ms",
        ),
        _key(
            "compression.type",
            _T.STRING,
            "producer",
            one_of("producer", *CODECS),
            "the codec that batches are kept in; producer: each as it was sent",
            "compression.type",
        ),
        _key(
            "compression.gzip.level",
            _T.INT,
            str(GZIP_DEFAULT_LEVEL),
            _gzip_level,
            "how hard gzip tries, with compression.type=gzip; -1: as usual",
            "compression.gzip.level",
        ),
        _key(
            "compression.lz4.level",
            _T.INT,
            "9",
            whole_number(1, 17),
            "how hard lz4 tries, with compression.type=lz4",
            "compression.lz4.level",
        ),
        _key(
            "compression.zstd.level",
            _T.INT,
            "3",
            whole_number(-131_072, 22),
            "how hard zstd tries, with compression.type=zstd",
            "compression.zstd.level",
        ),
        _key(
            "min.cleanable.dirty.ratio",
            _T.DOUBLE,
            "0.5",
            fraction,
            "a log is compacted when more than this part of it was not yet",
            "log.cleaner.min.cleanable.ratio",
        ),
        _key(
            "min.compaction.lag.ms",
            _T.LONG,
            "0",
            whole_number(0),
            "records younger than this are not compacted",
            "log.cleaner.min.compaction.lag.ms",
        ),
        _key(
            "max.compaction.lag.ms",
            _T.LONG,
            str(INT64_MAX),
            whole_number(1),
            "records older than this are compacted whatever the ratio",
            "log.cleaner.max.compaction.lag.ms",
        ),
        _key(
            "delete.retention.ms",
            _T.LONG,
            str(_DAY_MS),
            whole_number(0),
            "how long a compacted log still shows that a key was deleted",
            "log.cleaner.delete.retention.ms",
        ),
        *(
            _key(name, type_, default, check, NO_EFFECT, broker_name or None)
            for name, type_, default, check, broker_name in _WITHOUT_EFFECT
        ),
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
        return overrides.get(name, defaults.get(name, TOPIC_CONFIGS[name].default))

    def number(name: str) -> int:
        return int(value(name))

    compression = value("compression.type")
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
        codec=CODECS.get(compression),
        codec_level=_codec_level(compression, number),
        is_log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
    )


def _codec_level(compression: str, number: Callable[[str], int]) -> int | None:
    """What the codec of a topic is told; None: the codec's own."""
    if compression not in LEVELLED:
        return None
    level = number(f"compression.{compression}.level")
    return None if (compression, level) == ("gzip", GZIP_DEFAULT_LEVEL) else level
