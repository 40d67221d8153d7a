"""Configs of single consumer groups: set, shown, checked, kept, and obeyed from then on."""

from typing import Any

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.config_resources import GROUP, SOURCE_GROUP, SOURCE_STATIC_BROKER
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.support.served_node import Serve, ServedNode
from tests.unit.broker.group_steps import GROUP as READERS
from tests.unit.broker.test_api_consumer_groups import beat_request, group_of, join

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE = 0, 1


def alter(
    served: ServedNode, name: str, value: str | None, *, group: str = READERS, **more: Any
) -> int:
    operation = DELETE if value is None else SET
    config = AlterableConfig(name=name, value=value, config_operation=operation)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], **more)
    code: int = served.ask(request).responses[0].error_code
    return code


def shown(served: ServedNode) -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=READERS, configuration_keys=None
    )
    (result,) = served.ask(DescribeConfigsRequest(resources=[resource])).results
    assert result.error_code == ErrorCode.NONE
    return {one.name: (one.value, one.config_source) for one in result.configs}


def test_a_group_follows_the_broker_until_it_is_told_otherwise(serve: Serve) -> None:
    served = serve()
    defaults = {
        SESSION: ("45000", SOURCE_STATIC_BROKER),
        HEARTBEAT: ("5000", SOURCE_STATIC_BROKER),
    }
    assert shown(served) == defaults
    assert alter(served, SESSION, "9000") == ErrorCode.NONE
    assert shown(served) == defaults | {SESSION: ("9000", SOURCE_GROUP)}
    served.crash()
    again = serve()
    assert shown(again)[SESSION] == ("9000", SOURCE_GROUP)
    assert alter(again, SESSION, None) == ErrorCode.NONE
    assert shown(again) == defaults


def test_members_obey_from_their_next_heartbeat_on(served: ServedNode) -> None:
    served.create()
    join(served)
    alter(served, HEARTBEAT, "700")
    alter(served, SESSION, "2000")
    assert served.ask(beat_request("ada", 1)).heartbeat_interval_ms == 700
    served.advance(2.1)
    assert len(group_of(served).book) == 0


def test_a_group_that_is_made_later_has_its_configs(served: ServedNode) -> None:
    alter(served, HEARTBEAT, "700")
    served.create()
    join(served)
    assert served.ask(beat_request("ada", 1)).heartbeat_interval_ms == 700


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "soon"),
        (SESSION, "999"),
        (HEARTBEAT, "60001"),
        (HEARTBEAT, "45000"),  # not below the session timeout
        ("retention.ms", "1"),
    ],
)
def test_what_makes_no_sense_is_refused(served: ServedNode, name: str, value: str) -> None:
    assert alter(served, name, value) == ErrorCode.INVALID_CONFIG
    assert list(served.node.groups.configs) == []


def test_to_validate_changes_nothing(served: ServedNode) -> None:
    assert alter(served, SESSION, "9000", validate_only=True) == ErrorCode.NONE
    assert list(served.node.groups.configs) == []
    assert alter(served, SESSION, "9000", group="") == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("record", [b"{", b"7", b'{"consumer.session.timeout.ms": "soon"}'])
def test_a_record_that_cannot_be_read_stops_the_start(serve: Serve, record: bytes) -> None:
    served = serve()
    served.put(b"group-config/readers", record)
    served.crash()
    with pytest.raises(Corrupt, match="readers"):
        serve()


def test_groups_with_configs_are_listed(served: ServedNode) -> None:
    alter(served, SESSION, "9000")
    answer = served.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    assert [one.resource_name for one in answer.config_resources] == [READERS]
