import pytest

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.queues.acknowledgements import Partition
from millstream.queues.membership import Membership, RefusedByGroup

JOBS = b"j" * 16


def member() -> Membership:
    return Membership(group="queue.jobs", topic="jobs", member_id="m")


def assigned(*numbers: int) -> Assignment:
    return Assignment(topic_partitions=[TopicPartitions(topic_id=JOBS, partitions=list(numbers))])


def joined() -> Membership:
    one = member()
    one.take(ShareGroupHeartbeatResponse(member_epoch=3, assignment=assigned(0, 1)))
    return one


def test_it_joins_with_epoch_0_and_names_its_topic() -> None:
    request = member().heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["jobs"])


def test_a_member_repeats_its_epoch_and_no_longer_its_topic() -> None:
    request = joined().heartbeat()
    assert (request.member_epoch, request.subscribed_topic_names) == (3, None)


def test_an_assignment_stays_until_another_one_comes() -> None:
    one = joined()
    one.take(ShareGroupHeartbeatResponse(member_epoch=3))
    assert one.assigned == {Partition(JOBS, 0), Partition(JOBS, 1)}
    one.take(ShareGroupHeartbeatResponse(member_epoch=4, assignment=assigned(1)))
    assert one.assigned == {Partition(JOBS, 1)}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_forgotten_member_joins_again(code: ErrorCode) -> None:
    one = joined()
    one.take(ShareGroupHeartbeatResponse(error_code=code))
    assert not one.is_joined
    assert one.heartbeat().subscribed_topic_names == ["jobs"]


def test_an_error_that_passes_changes_nothing() -> None:
    one = joined()
    one.take(ShareGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert one.heartbeat().member_epoch == 3


def test_a_refusal_names_the_group_and_the_reason() -> None:
    refusal = ShareGroupHeartbeatResponse(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="not for you"
    )
    with pytest.raises(RefusedByGroup, match=r"queue\.jobs.*not for you.*GROUP_AUTHORIZATION"):
        member().take(refusal)


def test_an_error_of_a_later_kafka_is_a_refusal() -> None:
    with pytest.raises(RefusedByGroup, match="error 999"):
        member().take(ShareGroupHeartbeatResponse(error_code=999))


def test_it_leaves_with_epoch_minus_1() -> None:
    assert joined().leave().member_epoch == -1
