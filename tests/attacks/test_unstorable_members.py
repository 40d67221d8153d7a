"""A member says more than a record of its group can hold: the group goes on without it."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.wire import ErrorCode, Message
from millstream.broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.broker.wire.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.support.served_node import ServedNode

# Together more than the 64 MiB that the log of groups takes in one record.
TEXTS = [f"{number:06}" * 5_400 for number in range(2_200)]


def consumer(member_id: str, *more: str) -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders", *more],
        topic_partitions=[],
    )


def share(member_id: str, *more: str) -> Message:
    return ShareGroupHeartbeatRequest(
        group_id="group", member_id=member_id, subscribed_topic_names=["orders", *more]
    )


def streams(member_id: str, *more: str) -> Message:
    reads = Subtopology(subtopology_id="0", source_topics=["orders"])
    return StreamsGroupHeartbeatRequest(
        group_id="group",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[reads]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        client_tags=[KeyValue(key="zone", value=text) for text in more],
        task_offsets=None,
        task_end_offsets=None,
    )


@pytest.mark.parametrize("join", [consumer, share, streams])
def test_a_group_goes_on_without_a_member_that_cannot_be_stored(tmp_path: Path, join: Any) -> None:
    with closing(ServedNode(tmp_path)) as served:
        served.create()
        assert served.ask(join("a" * 22, *TEXTS)).error_code == ErrorCode.INVALID_REQUEST
        assert served.ask(join("b" * 22)).error_code == ErrorCode.NONE
