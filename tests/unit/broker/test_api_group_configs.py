"""Configs of single consumer groups: set, shown, checked, kept, and obeyed from then on."""

from typing import Any

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.config_resources import (
    GROUP,
    SOURCE_DEFAULT,
    SOURCE_GROUP,
    SOURCE_STATIC_BROKER,
)
from millstream.broker.share.share_partition import ShareTerms
from millstream.broker.share.share_reset import ResetTo, ShareReset
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
from tests.unit.broker.share_group_steps import beat_request as share_beat_request
from tests.unit.broker.share_group_steps import join_share
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
    served = serve(group_consumer_heartbeat_interval_ms=3_000)
    defaults = shown(served)
    assert defaults[SESSION] == ("45000", SOURCE_DEFAULT)
    assert defaults[HEARTBEAT] == ("3000", SOURCE_STATIC_BROKER)
    assert alter(served, SESSION, "9000") == ErrorCode.NONE
    assert shown(served) == defaults | {SESSION: ("9000", SOURCE_GROUP)}
    served.crash()
    again = serve(group_consumer_heartbeat_interval_ms=3_000)
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


def test_members_of_a_share_group_obey_too(served: ServedNode) -> None:
    served.create()
    join_share(served, group=READERS)
    alter(served, "share.heartbeat.interval.ms", "700")
    alter(served, "share.session.timeout.ms", "2000")
    answer = served.ask(share_beat_request("ada", 1, group=READERS))
    assert answer.heartbeat_interval_ms == 700
    served.advance(2.1)
    assert served.node.groups.shares.named(READERS).is_vacant


def test_a_share_group_shares_as_its_configs_say(serve: Serve) -> None:
    served = serve(group_share_record_lock_ms=7_000)
    configs = served.node.groups.configs
    assert configs.share_terms_of(READERS) == ShareTerms(lock_ms=7_000)
    assert configs.share_reset_of(READERS) == ShareReset(to=ResetTo.LATEST)
    assert (configs.share_reads_committed(READERS), configs.share_may_renew(READERS)) == (0, 1)
    assert configs.dead_letter_topic_of(READERS) is None
    for name, value in (
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "2"),
        ("share.partition.max.record.locks", "100"),
        ("share.auto.offset.reset", "by_duration:PT90S"),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "false"),
        ("errors.deadletterqueue.topic.name", "dead"),
    ):
        assert alter(served, name, value) == ErrorCode.NONE
    terms = ShareTerms(lock_ms=1_000, delivery_count_max=2, records_in_flight_max=100)
    assert configs.share_terms_of(READERS) == terms
    assert configs.share_reset_of(READERS) == ShareReset(to=ResetTo.TIME, age_ms=90_000)
    assert (configs.share_reads_committed(READERS), configs.share_may_renew(READERS)) == (1, 0)
    assert configs.dead_letter_topic_of(READERS) == "dead"


def test_a_group_that_is_made_later_has_its_configs(served: ServedNode) -> None:
    alter(served, HEARTBEAT, "700")
    served.create()
    join(served)
    assert served.ask(beat_request("ada", 1)).heartbeat_interval_ms == 700


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_when_kafka_assigns_is_accepted_shown_and_said_to_have_no_effect(
    served: ServedNode, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    interval = f"{kind}.assignment.interval.ms"
    caplog.set_level("WARNING")
    assert shown(served)[interval] == ("1000", SOURCE_DEFAULT)
    assert alter(served, interval, "1000") == ErrorCode.NONE  # as everybody has it
    assert not caplog.records
    assert alter(served, interval, "5000") == ErrorCode.NONE
    alter(served, interval, "5000")
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"group 'readers': {interval}=5000 is accepted and has no effect on a single node"
    )
    assert shown(served)[interval] == ("5000", SOURCE_GROUP)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "soon"),
        (SESSION, "999"),
        (HEARTBEAT, "60001"),
        (HEARTBEAT, "45000"),  # not below the session timeout
        ("retention.ms", "1"),
        ("share.heartbeat.interval.ms", "45000"),
        ("share.record.lock.duration.ms", "999"),
        ("share.delivery.count.limit", "26"),
        ("share.delivery.count.limit", "1"),
        ("share.partition.max.record.locks", "99"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:-P1D"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.isolation.level", "serializable"),
        ("share.renew.acknowledge.enable", "yes"),
        ("errors.deadletterqueue.topic.name", "a b"),
        ("errors.deadletterqueue.topic.name", "__consumer_offsets"),
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
