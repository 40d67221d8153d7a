"""Share sessions: epochs, partitions that come and go, and connections that break."""

import pytest

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_sessions import (
    CLOSING_EPOCH,
    EPOCH_MAX,
    AcknowledgedTooEarly,
    InvalidShareSessionEpoch,
    SessionKey,
    SessionRequest,
    ShareSession,
    ShareSessionNotFound,
    ShareSessions,
    TooManyShareSessions,
)

ADA, BOB = SessionKey("g", "ada"), SessionKey("g", "bob")
P0, P1, P2 = (TopicIdPartition(bytes(16), number) for number in range(3))


def ask(
    key: SessionKey,
    epoch: int,
    *added: TopicIdPartition,
    forgotten: frozenset[TopicIdPartition] = frozenset(),
    connection_id: int = 1,
) -> SessionRequest:
    return SessionRequest(
        key=key, epoch=epoch, connection_id=connection_id, added=added, forgotten=forgotten
    )


def opened(*partitions: TopicIdPartition) -> ShareSessions:
    sessions = ShareSessions()
    sessions.fetch(ask(ADA, 0, *partitions))
    return sessions


def test_a_session_remembers_the_partitions_it_was_opened_with() -> None:
    sessions = opened(P0, P1)
    assert {*sessions.fetch(ask(ADA, 1))} == {P0, P1}


def test_partitions_are_added_and_forgotten_on_the_way() -> None:
    sessions = opened(P0, P1)
    assert {*sessions.fetch(ask(ADA, 1, P2, forgotten=frozenset({P0})))} == {P1, P2}
    assert {*sessions.fetch(ask(ADA, 2))} == {P1, P2}


def test_each_request_begins_with_another_partition() -> None:
    sessions = opened(P0, P1, P2)
    first = [sessions.fetch(ask(ADA, epoch))[0] for epoch in (1, 2, 3, 4)]
    assert first == [P1, P2, P0, P1]


def test_fetches_and_acknowledgements_count_together() -> None:
    sessions = opened(P0)
    sessions.acknowledge(ADA, 1)
    sessions.fetch(ask(ADA, 2))
    sessions.acknowledge(ADA, 3)


@pytest.mark.parametrize("epoch", [1, 3, EPOCH_MAX])
def test_an_epoch_that_is_not_the_next_one_is_refused_and_changes_nothing(epoch: int) -> None:
    sessions = opened(P0)
    sessions.fetch(ask(ADA, 1))
    with pytest.raises(InvalidShareSessionEpoch) as caught:
        sessions.fetch(ask(ADA, epoch, P1))
    assert caught.value.expected == 2
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.acknowledge(ADA, epoch)
    assert sessions.fetch(ask(ADA, 2)) == (P0,)


def test_an_acknowledgement_cannot_open_a_session() -> None:
    for sessions in (ShareSessions(), opened(P0)):
        with pytest.raises(InvalidShareSessionEpoch):
            sessions.acknowledge(ADA, 0)


def test_a_request_that_opens_a_session_has_nothing_to_acknowledge() -> None:
    request = SessionRequest(key=ADA, epoch=0, connection_id=1, has_acknowledgements=True)
    with pytest.raises(AcknowledgedTooEarly):
        ShareSessions().fetch(request)


@pytest.mark.parametrize("epoch", [1, CLOSING_EPOCH])
def test_without_a_session_there_is_nothing_to_go_on_with_or_to_close(epoch: int) -> None:
    sessions = opened(P0)
    with pytest.raises(ShareSessionNotFound):
        sessions.fetch(ask(BOB, epoch))
    with pytest.raises(ShareSessionNotFound):
        sessions.acknowledge(BOB, epoch)


def test_a_closing_request_fetches_nothing_and_names_what_to_give_back() -> None:
    sessions = opened(P0, P1)
    assert sessions.fetch(ask(ADA, CLOSING_EPOCH)) == ()
    assert {*sessions.close(ADA)} == {P0, P1}
    with pytest.raises(ShareSessionNotFound):
        sessions.fetch(ask(ADA, 1))
    assert sessions.close(ADA) == ()


def test_opening_again_starts_over() -> None:
    sessions = opened(P0)
    assert sessions.fetch(ask(ADA, 0, P1)) == (P1,)
    assert sessions.fetch(ask(ADA, 1)) == (P1,)
    assert len(sessions) == 1


def test_the_last_session_that_fits_is_opened_and_one_more_is_not() -> None:
    sessions = ShareSessions(sessions_max=1)
    sessions.fetch(ask(ADA, 0, P0))
    with pytest.raises(TooManyShareSessions):
        sessions.fetch(ask(BOB, 0, P0))
    sessions.fetch(ask(ADA, 0, P0))
    sessions.close(ADA)
    sessions.fetch(ask(BOB, 0, P0))


def test_a_broken_connection_ends_its_sessions_and_no_others() -> None:
    sessions = ShareSessions()
    sessions.fetch(ask(ADA, 0, P0, connection_id=1))
    sessions.fetch(ask(BOB, 0, P1, connection_id=2))
    assert sessions.disconnect(1) == ((ADA, (P0,)),)
    assert sessions.fetch(ask(BOB, 1, connection_id=2)) == (P1,)


def test_after_the_last_epoch_comes_the_first() -> None:
    session = ShareSession(1, epoch=EPOCH_MAX)
    session.advance()
    assert session.epoch == 1
