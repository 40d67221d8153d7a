from millstream.broker.groups.group_messages import (
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    LeftMember,
    SyncReply,
)
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.group_state import GroupState
from millstream.broker.groups.outcome import Outbox, Outcome, Replies
from millstream.broker.wire.error_codes import ErrorCode
from tests.unit.broker.groups.steps import GroupDriver

METADATA = GroupMetadata(
    protocol_type="consumer",
    generation=1,
    protocol_name="range",
    leader=None,
    state_timestamp_ms=0,
)


def replies(*tokens: int) -> Replies:
    return tuple((token, HeartbeatReply()) for token in tokens)


def test_replies_without_metadata_go_out_at_once() -> None:
    assert Outbox().push(Outcome(replies=replies(1))) == replies(1)


def test_replies_wait_for_their_metadata() -> None:
    outbox = Outbox()
    assert outbox.push(Outcome(replies=replies(1), metadata=METADATA)) == ()
    assert outbox.persisted() == replies(1)


def test_a_later_reply_does_not_overtake_one_that_waits() -> None:
    outbox = Outbox()
    outbox.push(Outcome(replies=replies(1), metadata=METADATA))
    assert outbox.push(Outcome(replies=replies(2))) == ()
    assert outbox.persisted() == replies(1, 2)
    assert outbox.push(Outcome(replies=replies(3))) == replies(3)


def test_each_metadata_releases_its_own_replies_and_those_behind_it() -> None:
    outbox = Outbox()
    outbox.push(Outcome(replies=replies(1), metadata=METADATA))
    outbox.push(Outcome(replies=replies(2)))
    outbox.push(Outcome(replies=replies(3), metadata=METADATA))
    outbox.push(Outcome(replies=replies(4)))
    assert outbox.persisted() == replies(1, 2)
    assert outbox.persisted() == replies(3, 4)


def test_what_could_not_be_stored_is_not_claimed() -> None:
    outbox = Outbox()
    left = (LeftMember("ada-1", None, ErrorCode.NONE),)
    fenced = SyncReply(error=ErrorCode.FENCED_INSTANCE_ID)
    outbox.push(
        Outcome(
            replies=(
                (1, SyncReply(assignment=b"all")),
                (2, JoinReply(member_id="ada-1", generation=3)),
                (3, LeaveReply(members=left)),
                (4, fenced),
            ),
            metadata=METADATA,
        )
    )
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert outbox.failed(error) == (
        (1, SyncReply(error=error)),
        (2, JoinReply(error=error)),
        (3, LeaveReply(error=error, members=left)),
        (4, fenced),
    )


def test_what_rests_on_it_is_not_claimed_either() -> None:
    outbox = Outbox()
    outbox.push(Outcome(replies=replies(1), metadata=METADATA))
    outbox.push(Outcome(replies=((2, SyncReply(assignment=b"all")),)))
    outbox.push(Outcome(replies=replies(3), metadata=METADATA))
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [reply.error for _, reply in outbox.failed(error)] == [error, error]
    assert outbox.persisted() == replies(3)


def test_an_assignment_that_could_not_be_stored_is_made_again() -> None:
    driver = GroupDriver()
    (leader,) = driver.stabilize()
    driver.take(driver.group.persist_failed(now_ms=driver.now_ms))
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert driver.ask_to_join(member_id=leader).reply.generation == 2


def test_an_empty_group_that_could_not_be_stored_stays_empty() -> None:
    driver = GroupDriver()
    driver.leave(*driver.stabilize())
    driver.take(driver.group.persist_failed(now_ms=driver.now_ms))
    assert driver.group.state is GroupState.EMPTY


def test_metadata_is_the_group_as_it_was_when_the_call_ended() -> None:
    driver = GroupDriver()
    (leader,) = driver.stabilize()
    outcome = driver.last
    driver.leave(leader)
    assert outcome.metadata is not None
    assert [member.member_id for member in outcome.metadata.members] == [leader]
