"""Share groups across kill -9 of the broker: members, epochs and places are what was answered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Broker
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.broker.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.clients.share_group_steps import (
    Position,
    configure_group,
    describe_share_group,
    members_of,
    positions_of,
)
from tests.support.raw_client import RawClient, batch_of

TOPIC, GROUP = "orders", "workers"
JOIN, LEAVE = 0, -1

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "data").start()
    with RawClient(running.bootstrap) as client:
        client.create_topic(TOPIC, partitions=2)
        client.produce(TOPIC, batch_of(b"a", b"b", b"c"))
    yield running
    running.stop()


def kill_and_start_again(broker: Broker) -> None:
    broker.kill()
    broker.start()


def beat(broker: Broker, member: str, epoch: int) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=[TOPIC] if epoch == JOIN else None,
    )
    with RawClient(broker.bootstrap) as client:
        answer = client.call(request, ShareGroupHeartbeatResponse, 1)
    assert answer.error_code == 0, answer.error_message
    return answer


def set_start(broker: Broker, offset: int) -> None:
    place = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[place])
    with RawClient(broker.bootstrap) as client:
        request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])
        answer = client.call(request, AlterShareGroupOffsetsResponse, 0)
    assert answer.error_code == 0, answer.error_message


def test_members_go_on_with_what_they_had(broker: Broker) -> None:
    for number, member in enumerate(("ada", "bob"), start=1):
        answer = beat(broker, member, JOIN)
        assert answer.member_epoch == number
        told = members_of(broker.bootstrap, GROUP)[member]
        kill_and_start_again(broker)
        assert members_of(broker.bootstrap, GROUP)[member] == told
        again = beat(broker, member, number)
        assert (again.member_epoch, again.assignment) == (number, None)
    beat(broker, "bob", LEAVE)
    kill_and_start_again(broker)
    assert members_of(broker.bootstrap, GROUP).keys() == {"ada"}


def test_places_configs_and_deletions_are_what_was_answered(broker: Broker) -> None:
    set_start(broker, 1)
    configure_group(broker.bootstrap, GROUP, share_record_lock_duration_ms="1500")
    kill_and_start_again(broker)
    assert positions_of(broker.bootstrap, GROUP) == {(TOPIC, 0): Position(1, 2)}
    with RawClient(broker.bootstrap) as client:
        request = DeleteGroupsRequest(groups_names=[GROUP])
        assert client.call(request, DeleteGroupsResponse, 2).results[0].error_code == 0
    kill_and_start_again(broker)
    assert describe_share_group(broker.bootstrap, GROUP).error_code != 0
    assert beat(broker, "ada", JOIN).member_epoch == 1
    assert positions_of(broker.bootstrap, GROUP)[TOPIC, 0] == Position(-1, -1)
