"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from typing import Any

import pytest

from millstream.broker.config_resources import (
    BROKER,
    SOURCE_ALL_BROKERS,
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER,
    SOURCE_STATIC_BROKER,
    SOURCE_TOPIC,
    TOPIC,
)
from millstream.broker.topic_config import TOPIC_CONFIGS
from millstream.broker.topics import INTERNAL_TOPICS, METADATA_TOPIC, OFFSETS_TOPIC
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages import alter_configs as whole
from millstream.broker.wire.messages import incremental_alter_configs as single
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from millstream.broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.served_node import Serve, ServedNode

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
THIS_BROKER = "1"


def describe(
    served: ServedNode, kind: int, name: str, keys: list[str] | None = None, **more: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **{"include_synonyms": True} | more)
    (result,) = served.ask(request).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def entry(served: ServedNode, kind: int, name: str, config: str) -> DescribeConfigsResourceResult:
    (one,) = describe(served, kind, name, [config]).configs
    return one


def change(
    served: ServedNode,
    kind: int,
    name: str,
    *changes: tuple[int, str, str | None],
    validate_only: bool = False,
) -> int:
    configs = [
        single.AlterableConfig(name=config, config_operation=operation, value=value)
        for operation, config, value in changes
    ]
    resource = single.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = single.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    code: int = served.ask(request).responses[0].error_code
    return code


def replace(
    served: ServedNode, kind: int, name: str, *, validate_only: bool = False, **values: str | None
) -> int:
    configs = [
        whole.AlterableConfig(name=config.replace("_", "."), value=value)
        for config, value in values.items()
    ]
    resource = whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = whole.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    code: int = served.ask(request).responses[0].error_code
    return code


# --- describe ---------------------------------------------------------------------------------


def test_a_topic_has_every_config_with_type_and_explanation(served: ServedNode) -> None:
    served.create()
    result = describe(served, TOPIC, "orders", include_documentation=True)
    assert {one.name for one in result.configs} == TOPIC_CONFIGS.keys()
    for one in result.configs:
        assert one.config_type == TOPIC_CONFIGS[one.name].type
        assert one.documentation == TOPIC_CONFIGS[one.name].help
        assert (one.is_sensitive, one.read_only) == (False, False)


@pytest.mark.parametrize("keys", [None, []])
def test_no_names_and_an_empty_list_of_names_ask_for_all(
    served: ServedNode, keys: list[str] | None
) -> None:
    served.create()
    assert len(describe(served, TOPIC, "orders", keys).configs) == len(TOPIC_CONFIGS)


def test_names_ask_for_those_alone(served: ServedNode) -> None:
    served.create()
    result = describe(served, TOPIC, "orders", ["retention.ms", "no.such.config"])
    assert [one.name for one in result.configs] == ["retention.ms"]


def test_a_value_names_its_source_and_what_it_would_be_without_it(serve: Serve) -> None:
    served = serve(retention_ms=1_000)
    served.create()
    default = ("log.retention.ms", "604800000", SOURCE_DEFAULT)
    setting = ("log.retention.ms", "1000", SOURCE_STATIC_BROKER)
    dynamic = ("log.retention.ms", "2000", SOURCE_DYNAMIC_BROKER)
    override = ("retention.ms", "3000", SOURCE_TOPIC)

    def shown() -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
        one = entry(served, TOPIC, "orders", "retention.ms")
        synonyms = [(s.name, s.value, s.source) for s in one.synonyms]
        return one.value, one.config_source, synonyms

    assert shown() == ("1000", SOURCE_STATIC_BROKER, [setting, default])
    change(served, BROKER, THIS_BROKER, (SET, "log.retention.ms", "2000"))
    assert shown() == ("2000", SOURCE_DYNAMIC_BROKER, [dynamic, setting, default])
    change(served, TOPIC, "orders", (SET, "retention.ms", "3000"))
    assert shown() == ("3000", SOURCE_TOPIC, [override, dynamic, setting, default])


def test_a_value_that_nobody_set_is_a_default(served: ServedNode) -> None:
    served.create()
    one = entry(served, TOPIC, "orders", "segment.index.bytes")
    assert (one.value, one.config_source) == ("10485760", SOURCE_DEFAULT)


def test_synonyms_come_only_when_asked_for(served: ServedNode) -> None:
    served.create()
    result = describe(served, TOPIC, "orders", include_synonyms=False)
    assert not any(one.synonyms for one in result.configs)


def test_the_broker_shows_what_can_be_changed_and_what_cannot(serve: Serve) -> None:
    served = serve(default_partitions=5)
    changeable = entry(served, BROKER, THIS_BROKER, "log.retention.ms")
    fixed = entry(served, BROKER, THIS_BROKER, "num.partitions")
    assert not changeable.read_only
    assert (fixed.value, fixed.read_only) == ("5", True)


def test_all_brokers_show_only_what_was_changed(served: ServedNode) -> None:
    assert describe(served, BROKER, "").configs == []
    change(served, BROKER, "", (SET, "log.retention.ms", "2000"))
    (one,) = describe(served, BROKER, "").configs
    assert (one.name, one.value, one.config_source) == (
        "log.retention.ms",
        "2000",
        SOURCE_ALL_BROKERS,
    )


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_CONFIG),
        (8, THIS_BROKER, ErrorCode.INVALID_REQUEST),
        (16, "readers", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_configuration_is_refused_with_a_reason(
    served: ServedNode, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(served, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


# --- incremental changes ----------------------------------------------------------------------


def overrides(served: ServedNode) -> dict[str, str]:
    return served.node.topics.named("orders").overrides


def test_single_configs_of_a_topic_are_set_and_deleted(served: ServedNode) -> None:
    served.create("orders", segment_ms="5000")
    assert change(served, TOPIC, "orders", (SET, "retention.ms", "7")) == ErrorCode.NONE
    assert overrides(served) == {"segment.ms": "5000", "retention.ms": "7"}
    changes = ((DELETE, "segment.ms", None), (SET, "retention.ms", "8"))
    assert change(served, TOPIC, "orders", *changes) == ErrorCode.NONE
    assert overrides(served) == {"retention.ms": "8"}
    assert served.node.topics.named("orders").partitions[0].log.config.retention_ms == 8


def test_lists_of_a_topic_are_appended_to_and_subtracted_from(served: ServedNode) -> None:
    served.create()
    policy = "cleanup.policy"
    assert change(served, TOPIC, "orders", (APPEND, policy, "compact")) == ErrorCode.NONE
    assert overrides(served) == {policy: "delete,compact"}
    assert change(served, TOPIC, "orders", (APPEND, policy, "compact")) == ErrorCode.NONE
    assert overrides(served) == {policy: "delete,compact"}
    assert change(served, TOPIC, "orders", (SUBTRACT, policy, "delete")) == ErrorCode.NONE
    assert overrides(served) == {policy: "compact"}
    assert change(served, TOPIC, "orders", (SUBTRACT, policy, "compact")) == ErrorCode.NONE
    assert overrides(served) == {policy: ""}
    assert change(served, TOPIC, "orders", (APPEND, policy, "compact")) == ErrorCode.NONE
    assert overrides(served) == {policy: "compact"}


def test_the_broker_takes_all_four_operations_too(served: ServedNode) -> None:
    served.create()
    policy = "log.cleanup.policy"
    (log,) = [p.log for p in served.node.topics.named("orders").partitions]
    for name in (THIS_BROKER, ""):
        assert change(served, BROKER, name, (APPEND, policy, "compact")) == ErrorCode.NONE
        assert served.node.topics.broker_overrides == {policy: "delete,compact"}
        assert change(served, BROKER, name, (SUBTRACT, policy, "delete")) == ErrorCode.NONE
        assert not log.config.deletes_old_segments
        assert change(served, BROKER, name, (SET, policy, "")) == ErrorCode.NONE
        assert (log.config.deletes_old_segments, log.config.is_compacted) == (False, False)
        assert change(served, BROKER, name, (SET, "log.segment.bytes", "5000")) == ErrorCode.NONE
        assert log.config.segment_bytes == 5_000
        changes = ((DELETE, policy, None), (DELETE, "log.segment.bytes", None))
        assert change(served, BROKER, name, *changes) == ErrorCode.NONE
        assert served.node.topics.broker_overrides == {}
        assert log.config.deletes_old_segments


def test_validating_changes_nothing(served: ServedNode) -> None:
    served.create()
    good, bad = (SET, "retention.ms", "7"), (SET, "retention.ms", "soon")
    assert change(served, TOPIC, "orders", good, validate_only=True) == ErrorCode.NONE
    assert change(served, TOPIC, "orders", bad, validate_only=True) == ErrorCode.INVALID_CONFIG
    broker = (SET, "log.retention.ms", "7")
    assert change(served, BROKER, THIS_BROKER, broker, validate_only=True) == ErrorCode.NONE
    assert overrides(served) == {}
    assert served.node.topics.broker_overrides == {}


@pytest.mark.parametrize(
    "bad",
    [
        (SET, "retention.ms", "soon"),
        (SET, "retention.ms", None),
        (SET, "no.such.config", "1"),
        (APPEND, "retention.ms", "1"),
        (SUBTRACT, "no.such.config", "1"),
        (9, "cleanup.policy", "delete"),
    ],
)
def test_one_bad_change_of_a_resource_changes_nothing_of_it(
    served: ServedNode, bad: tuple[int, str, str | None]
) -> None:
    served.create()
    good = (SET, "segment.ms", "5000")
    assert change(served, TOPIC, "orders", good, bad) == ErrorCode.INVALID_CONFIG
    assert overrides(served) == {}


@pytest.mark.parametrize(
    ("kind", "name", "config", "code"),
    [
        (TOPIC, "nothing", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, METADATA_TOPIC, "retention.ms", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, OFFSETS_TOPIC, "retention.ms", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", "log.retention.ms", ErrorCode.INVALID_CONFIG),
        (BROKER, THIS_BROKER, "num.partitions", ErrorCode.INVALID_REQUEST),
        (8, THIS_BROKER, "kafka.server", ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_what_cannot_be_changed_is_refused(
    served: ServedNode, kind: int, name: str, config: str, code: ErrorCode, validate_only: bool
) -> None:
    changes = (SET, config, "1")
    assert change(served, kind, name, changes, validate_only=validate_only) == code


def test_what_has_no_effect_here_is_accepted_shown_and_said(
    served: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    served.create()
    caplog.set_level("WARNING")
    changes = ((SET, "num.io.threads", "9"), (SET, "my.plugin.password", "secret"))
    assert change(served, BROKER, THIS_BROKER, *changes) == ErrorCode.NONE
    shown = entry(served, BROKER, THIS_BROKER, "num.io.threads")
    assert (shown.value, shown.config_source) == ("9", SOURCE_DYNAMIC_BROKER)
    hidden = entry(served, BROKER, "", "my.plugin.password")
    assert (hidden.value, hidden.is_sensitive) == (None, True)
    assert change(served, TOPIC, "orders", (SET, "min.insync.replicas", "2")) == ErrorCode.NONE
    said = [record.getMessage() for record in caplog.records]
    assert "broker config num.io.threads is accepted and has no effect here" in said
    assert "orders: min.insync.replicas=2 is accepted and has no effect" in "".join(said)
    assert "secret" not in "".join(said)


def test_what_was_accepted_is_there_after_a_restart(serve: Serve) -> None:
    served = serve()
    changes = ((SET, "num.io.threads", "9"), (SET, "compression.type", "zstd"))
    assert change(served, BROKER, THIS_BROKER, *changes) == ErrorCode.NONE
    served.close()
    again = serve()
    assert again.node.topics.broker_overrides == {
        "num.io.threads": "9",
        "compression.type": "zstd",
    }
    assert again.create().partitions[0].log.config.codec == 4


# --- replacing all ----------------------------------------------------------------------------


def test_alter_configs_replaces_all_overrides(served: ServedNode) -> None:
    served.create("orders", segment_ms="5000")
    assert replace(served, TOPIC, "orders", retention_ms="7") == ErrorCode.NONE
    assert overrides(served) == {"retention.ms": "7"}
    assert replace(served, BROKER, THIS_BROKER, log_retention_ms="9") == ErrorCode.NONE
    assert replace(served, BROKER, THIS_BROKER, log_roll_ms="8") == ErrorCode.NONE
    assert served.node.topics.broker_overrides == {"log.roll.ms": "8"}


def test_alter_configs_refuses_a_null_and_keeps_what_was_there(served: ServedNode) -> None:
    served.create("orders", segment_ms="5000")
    assert replace(served, TOPIC, "orders", retention_ms=None) == ErrorCode.INVALID_CONFIG
    assert replace(served, TOPIC, "orders", validate_only=True) == ErrorCode.NONE
    assert overrides(served) == {"segment.ms": "5000"}


# --- list -------------------------------------------------------------------------------------


def test_what_has_configuration_is_listed(served: ServedNode) -> None:
    served.create()

    def listed(version: int, *types: int) -> set[tuple[str, int]]:
        answer = served.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
        return {(one.resource_name, one.resource_type) for one in answer.config_resources}

    topics = {(name, TOPIC) for name in ("orders", *INTERNAL_TOPICS)}
    broker = {(THIS_BROKER, BROKER)}
    assert listed(1) == topics | broker
    assert listed(1, TOPIC) == topics
    assert listed(1, BROKER) == broker
    assert listed(1, 16) == set()
    assert listed(0) == set()
