import pytest

from millstream.broker.config import BrokerConfig
from millstream.broker.topic_config import (
    INT32_MAX,
    LEVELLED,
    TOPIC_CONFIGS,
    TOPIC_NAME_OF_BROKER_NAME,
    InvalidConfig,
    broker_defaults,
    check_topic_config,
    log_config,
)
from millstream.log.config import INT64_MAX, LogConfig

INT32, INT64 = str(INT32_MAX), str(INT64_MAX)
PAST_INT32, PAST_INT64 = str(INT32_MAX + 1), str(INT64_MAX + 1)
NOT_NUMBERS = ["", "many", "1.5", "1_000", " 1", "1e3", "٣"]
BOOLEANS = (["true", "false"], ["", "yes", "True", "1"])

# Every config: what it takes, what it refuses.
ALLOWED_AND_REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "cleanup.policy": (
        ["delete", "compact", "compact,delete", "delete, compact", ""],
        ["keep", "delete,", ",", "Delete"],
    ),
    "retention.ms": (["-1", "0", INT64], ["-2", PAST_INT64, *NOT_NUMBERS]),
    "retention.bytes": (["-1", "0", INT64], ["-2", PAST_INT64, *NOT_NUMBERS]),
    "segment.bytes": (["14", INT32], ["13", PAST_INT32, *NOT_NUMBERS]),
    "segment.ms": (["1", INT64], ["0", PAST_INT64, *NOT_NUMBERS]),
    "segment.index.bytes": (["4", INT32], ["3", PAST_INT32, *NOT_NUMBERS]),
    "index.interval.bytes": (["0", INT32], ["-1", PAST_INT32, *NOT_NUMBERS]),
    "max.message.bytes": (["0", INT32], ["-1", PAST_INT32, *NOT_NUMBERS]),
    "message.timestamp.type": (["CreateTime", "LogAppendTime"], ["", "createtime", "Both"]),
    "message.timestamp.before.max.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "message.timestamp.after.max.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "flush.messages": (["1", INT64], ["0", PAST_INT64, *NOT_NUMBERS]),
    "flush.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "compression.type": (
        ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"],
        ["", "none", "GZIP"],
    ),
    "compression.gzip.level": (["-1", "1", "9"], ["-2", "0", "10"]),
    "compression.lz4.level": (["1", "17"], ["0", "18"]),
    "compression.zstd.level": (["-131072", "22"], ["-131073", "23"]),
    "leader.replication.throttled.replicas": (["", "*", "0:1", "0:1,1:1"], ["x", "none", "0:1,"]),
    "follower.replication.throttled.replicas": (["", "*", "0:1"], ["x", "0", ",0:1"]),
    "remote.storage.enable": (["false"], ["true", ""]),
    "remote.log.copy.disable": (["true", "false"], ["yes"]),
    "remote.log.delete.on.disable": (["true", "false"], ["yes"]),
    "local.retention.ms": (["-2", "-1", "0"], ["-3", "x"]),
    "local.retention.bytes": (["-2", "-1", "0"], ["-3", "x"]),
    "min.cleanable.dirty.ratio": (["0", "0.5", "1"], ["", "-0.1", "1.1", "nan", "half"]),
    "min.compaction.lag.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "max.compaction.lag.ms": (["1", INT64], ["0", PAST_INT64, *NOT_NUMBERS]),
    "delete.retention.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "min.insync.replicas": (["1", INT32], ["0", PAST_INT32, *NOT_NUMBERS]),
    "unclean.leader.election.enable": BOOLEANS,
    "preallocate": BOOLEANS,
    "file.delete.delay.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
    "segment.jitter.ms": (["0", INT64], ["-1", PAST_INT64, *NOT_NUMBERS]),
}

# Which field of the log's configuration a topic config becomes, with a value of each.
FIELDS: dict[str, tuple[str, str, object]] = {
    "cleanup.policy": ("deletes_old_segments", "compact", False),
    "retention.ms": ("retention_ms", "11", 11),
    "retention.bytes": ("retention_bytes", "12", 12),
    "segment.bytes": ("segment_bytes", "1300", 1300),
    "segment.ms": ("segment_ms", "14", 14),
    "segment.index.bytes": ("segment_index_bytes", "15", 15),
    "index.interval.bytes": ("index_interval_bytes", "16", 16),
    "max.message.bytes": ("message_bytes_max", "17", 17),
    "message.timestamp.type": ("is_log_append_time", "LogAppendTime", True),
    "message.timestamp.before.max.ms": ("timestamp_before_max_ms", "18", 18),
    "message.timestamp.after.max.ms": ("timestamp_after_max_ms", "19", 19),
    "flush.messages": ("flush_messages", "20", 20),
    "flush.ms": ("flush_ms", "21", 21),
    "compression.type": ("codec", "zstd", 4),
    "min.cleanable.dirty.ratio": ("dirty_ratio_min", "0.22", 0.22),
    "min.compaction.lag.ms": ("compaction_lag_min_ms", "23", 23),
    "max.compaction.lag.ms": ("compaction_lag_max_ms", "24", 24),
    "delete.retention.ms": ("delete_retention_ms", "25", 25),
}


def test_every_config_has_its_values_here() -> None:
    assert ALLOWED_AND_REFUSED.keys() == TOPIC_CONFIGS.keys()


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_a_config_takes_what_it_allows_and_its_default(name: str) -> None:
    allowed, _ = ALLOWED_AND_REFUSED[name]
    for value in (*allowed, TOPIC_CONFIGS[name].default):
        assert check_topic_config(name, value) == value


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_a_config_refuses_the_rest_and_says_which_and_why(name: str) -> None:
    _, refused = ALLOWED_AND_REFUSED[name]
    for value in refused:
        with pytest.raises(InvalidConfig) as caught:
            check_topic_config(name, value)
        assert f"{name}={value!r}: must be" in str(caught.value)


@pytest.mark.parametrize("value", [None, "1"])
def test_an_unknown_config_is_refused(value: str | None) -> None:
    with pytest.raises(InvalidConfig, match="there is no such topic config"):
        check_topic_config("retention.hours", value)


def test_a_config_needs_a_value() -> None:
    with pytest.raises(InvalidConfig, match="a value is required"):
        check_topic_config("retention.ms", None)


@pytest.mark.parametrize(("name", "case"), FIELDS.items())
def test_a_config_reaches_the_log(name: str, case: tuple[str, str, object]) -> None:
    field, value, expected = case
    assert getattr(log_config({name: value}, {}), field) == expected
    assert getattr(log_config({}, {name: value}), field) == expected


def test_without_any_configuration_a_log_has_kafkas_defaults() -> None:
    assert log_config({}, {}) == LogConfig()


def test_a_topic_that_compacts_and_deletes_still_deletes() -> None:
    assert log_config({"cleanup.policy": "compact,delete"}, {}).deletes_old_segments


@pytest.mark.parametrize("default", ["delete", "compact", ""])
def test_a_topic_with_an_empty_policy_keeps_everything(default: str) -> None:
    config = log_config({"cleanup.policy": ""}, {"cleanup.policy": default, "retention.ms": "1"})
    assert not config.deletes_old_segments
    assert not config.is_compacted


def test_a_topic_follows_an_empty_policy_of_the_broker() -> None:
    config = log_config({}, {"cleanup.policy": ""})
    assert not config.deletes_old_segments
    assert not config.is_compacted


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_compacted_topic_is_rolled_in_time_for_its_largest_lag(policy: str) -> None:
    overrides = {"cleanup.policy": policy, "max.compaction.lag.ms": "7", "segment.ms": "9"}
    config = log_config(overrides, {})
    assert config.is_compacted
    assert config.segment_ms == 7
    assert log_config({**overrides, "cleanup.policy": "delete"}, {}).segment_ms == 9


def test_an_override_of_zero_is_an_override() -> None:
    assert log_config({"retention.ms": "0"}, {"retention.ms": "5"}).retention_ms == 0


def test_the_settings_are_the_defaults_of_all_topics() -> None:
    settings = BrokerConfig(
        segment_bytes=1 << 20,
        segment_ms=2,
        retention_ms=3,
        retention_bytes=4,
        message_bytes_max=5,
    )
    config = log_config({}, broker_defaults(settings))
    assert (config.segment_bytes, config.segment_ms) == (1 << 20, 2)
    assert (config.retention_ms, config.retention_bytes) == (3, 4)
    assert config.message_bytes_max == 5
    assert config.syncs_before_ack


def test_relaxed_settings_sync_by_the_clock_and_a_topic_can_still_ask_for_more() -> None:
    relaxed = broker_defaults(BrokerConfig(is_relaxed=True, relaxed_sync_interval_ms=250))
    assert not log_config({}, relaxed).syncs_before_ack
    assert log_config({}, relaxed).flush_ms == 250
    assert log_config({"flush.messages": "1"}, relaxed).syncs_before_ack


def test_each_broker_config_stands_for_one_topic_config() -> None:
    assert len(set(TOPIC_NAME_OF_BROKER_NAME.values())) == len(TOPIC_NAME_OF_BROKER_NAME)
    acting = {name for name, key in TOPIC_CONFIGS.items() if not key.is_without_effect}
    levels = {f"compression.{codec}.level" for codec in LEVELLED}
    assert set(FIELDS) == acting - levels
    assert acting <= set(TOPIC_NAME_OF_BROKER_NAME.values())


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [("gzip", "-1", None), ("gzip", "9", 9), ("lz4", "4", 4), ("zstd", "-7", -7)],
)
def test_the_level_is_that_of_the_topic_s_codec(
    codec: str, level: str, expected: int | None
) -> None:
    overrides = {"compression.type": codec, f"compression.{codec}.level": level}
    assert log_config(overrides, {}).codec_level == expected


def test_a_topic_that_keeps_its_producers_codecs_has_none_of_its_own() -> None:
    assert log_config({"compression.type": "producer"}, {}).codec is None
    assert log_config({"compression.type": "uncompressed"}, {}).codec == 0
    assert log_config({"compression.type": "snappy"}, {}).codec_level is None
