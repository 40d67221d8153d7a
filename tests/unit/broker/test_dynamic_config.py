"""Configs of the broker that a client changes while it runs: accepted, without effect, refused."""

import pytest

from millstream.broker.dynamic_config import (
    READ_ONLY,
    SET_AT_START,
    WITHOUT_EFFECT,
    InvalidBrokerConfig,
    broker_config_key,
    check_broker_config,
    is_secret,
)
from millstream.broker.topic_config import TOPIC_NAME_OF_BROKER_NAME


def test_a_default_of_topics_is_checked_like_the_topic_config_it_stands_for() -> None:
    assert check_broker_config("log.retention.ms", "-1") == "-1"
    with pytest.raises(InvalidBrokerConfig, match="must be from -1"):
        check_broker_config("log.retention.ms", "-2")


@pytest.mark.parametrize("name", ["num.partitions", "advertised.listeners", "log.dirs"])
def test_what_kafka_does_not_change_either_is_refused(name: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match="cannot be changed while the broker runs"):
        check_broker_config(name, "1")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("max.connections", "--connections-max"),
        ("log.cleaner.dedupe.buffer.size", "--compaction-map-bytes"),
        ("ssl.keystore.location", "--tls-certificate"),
        ("listener.name.plaintext.ssl.keystore.location", "--tls-certificate"),
        ("sasl.enabled.mechanisms", "--sasl"),
    ],
)
def test_what_is_set_at_the_start_is_refused_with_its_option(name: str, option: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match=option):
        check_broker_config(name, "1")


@pytest.mark.parametrize("name", ["num.io.threads", "leader.replication.throttled.rate"])
def test_what_has_no_meaning_here_is_accepted_and_says_so(name: str) -> None:
    assert check_broker_config(name, "9") == "9"
    assert broker_config_key(name).is_without_effect
    with pytest.raises(InvalidBrokerConfig, match="must be a whole number"):
        check_broker_config(name, "many")


def test_what_nobody_knows_is_accepted_and_its_value_is_not_kept() -> None:
    assert check_broker_config("my.plugin.password", "secret") == ""
    assert is_secret("my.plugin.password")
    assert not is_secret("num.io.threads")


def test_a_config_needs_a_value() -> None:
    with pytest.raises(InvalidBrokerConfig, match="a value is required"):
        check_broker_config("log.retention.ms", None)


def test_no_config_is_of_two_kinds() -> None:
    kinds = [READ_ONLY, SET_AT_START.keys(), WITHOUT_EFFECT.keys(), TOPIC_NAME_OF_BROKER_NAME]
    names = [name for kind in kinds for name in kind]
    assert len(names) == len(set(names))
