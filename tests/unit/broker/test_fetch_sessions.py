"""Fetch sessions: how many there are, which one goes, and what one adds up to."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.fetch_sessions import (
    EPOCH_MAX,
    IDLE_MS,
    SEARCH_EVERY_MS,
    SESSION_PARTITIONS_MAX,
    FetchSession,
    FetchSessionNotFound,
    FetchSessions,
)
from millstream.broker.topics import TOPIC_NAME_LENGTH_MAX
from millstream.broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


def request(*partitions: int, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    places = [FetchPartition(partition=number) for number in partitions]
    topics = [FetchTopic(topic="orders", partitions=places)] if places else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


def sessions(**limits: int) -> FetchSessions:
    return FetchSessions(count(1).__next__, **limits)


def open_one(every: FetchSessions, *partitions: int, now_ms: int = 0) -> FetchSession | None:
    return every.open(request(*partitions), owner="ada", has_topic_ids=False, now_ms=now_ms)


def resume(every: FetchSessions, asked: FetchRequest, now_ms: int = 0) -> FetchSession | None:
    return every.resume(asked, owner="ada", has_topic_ids=False, now_ms=now_ms)


def test_past_the_limit_nobody_gets_a_session_until_one_is_idle() -> None:
    every = sessions(sessions_max=2)
    assert open_one(every, 0) is not None
    assert open_one(every, 0, now_ms=1) is not None
    assert open_one(every, 0, now_ms=IDLE_MS) is None
    assert open_one(every, 0, now_ms=IDLE_MS + 1) is not None
    assert len(every) == 2
    with pytest.raises(FetchSessionNotFound):
        resume(every, request(session_id=1, epoch=1))


def test_the_session_that_was_used_last_stays() -> None:
    every = sessions(sessions_max=2)
    open_one(every, 0)
    open_one(every, 0)
    resume(every, request(session_id=1, epoch=1), now_ms=5)
    assert open_one(every, 0, now_ms=IDLE_MS + 1) is not None
    assert resume(every, request(session_id=1, epoch=2)) is not None


def test_a_session_with_more_partitions_takes_the_place_of_a_smaller_one_that_is_old() -> None:
    every = sessions(sessions_max=2)
    open_one(every, 0, 1)
    open_one(every, 0)
    for now_ms, epoch in ((IDLE_MS - 1, 1), (IDLE_MS, 2)):  # both are in use
        resume(every, request(session_id=1, epoch=epoch), now_ms=now_ms)
        resume(every, request(session_id=2, epoch=epoch), now_ms=now_ms)
    assert open_one(every, 0, 1, 2, now_ms=IDLE_MS) is None  # none is old enough
    now_ms = IDLE_MS + SEARCH_EVERY_MS
    assert open_one(every, 0, now_ms=now_ms) is None  # as small as the smallest one
    assert open_one(every, 0, 1, now_ms=now_ms) is not None
    with pytest.raises(FetchSessionNotFound):
        resume(every, request(session_id=2, epoch=3), now_ms=now_ms)
    assert resume(every, request(session_id=1, epoch=3), now_ms=now_ms) is not None
    assert (len(every), every.partition_count) == (2, 4)


def test_clients_that_find_no_smaller_session_do_not_look_through_all_of_them_again() -> None:
    every = sessions(sessions_max=1)
    open_one(every, 0, 1)
    assert open_one(every, 0, 1, 2, now_ms=IDLE_MS) is None
    resume(every, request(session_id=1, epoch=1), now_ms=IDLE_MS)
    soon, later = IDLE_MS + SEARCH_EVERY_MS - 1, IDLE_MS + SEARCH_EVERY_MS
    assert open_one(every, 0, 1, 2, now_ms=soon) is None  # it has become old meanwhile
    assert open_one(every, 0, 1, 2, now_ms=later) is not None


def test_all_sessions_together_hold_so_many_partitions() -> None:
    every = sessions(partitions_max=3)
    assert open_one(every, 0, 1) is not None
    assert open_one(every, 0, 1) is None
    assert open_one(every, 0) is not None
    with pytest.raises(FetchSessionNotFound):
        resume(every, request(7, session_id=1, epoch=1))
    assert every.partition_count == 1


def named(length: int, session_id: int = 0, epoch: int = 0) -> FetchRequest:
    asked = request(0, session_id=session_id, epoch=epoch)
    asked.topics[0].topic = "n" * length
    return asked


def test_one_session_holds_so_many_partitions() -> None:
    """A request of a few bytes makes the broker look at all of them."""
    every = sessions()
    assert open_one(every, *range(SESSION_PARTITIONS_MAX + 1)) is None
    largest = open_one(every, *range(SESSION_PARTITIONS_MAX))
    assert largest is not None
    grown = request(SESSION_PARTITIONS_MAX, session_id=largest.session_id, epoch=1)
    with pytest.raises(FetchSessionNotFound):
        resume(every, grown)
    assert (len(every), every.partition_count) == (0, 0)


def test_no_session_keeps_a_name_that_no_topic_can_have() -> None:
    every = sessions()
    longest = TOPIC_NAME_LENGTH_MAX

    def opened(length: int) -> FetchSession | None:
        return every.open(named(length), owner="ada", has_topic_ids=False, now_ms=0)

    assert opened(longest + 1) is None
    session = opened(longest)
    assert session is not None
    number = session.session_id
    assert resume(every, named(longest, number, epoch=1)) is session
    with pytest.raises(FetchSessionNotFound):
        resume(every, named(longest + 1, number, epoch=2))
    assert (len(every), every.partition_count) == (0, 0)


def test_a_session_without_partitions_ends() -> None:
    every = sessions()
    assert open_one(every) is None
    session = open_one(every, 0)
    assert session is not None
    asked = request(session_id=session.session_id, epoch=1)
    asked.forgotten_topics_data = [ForgottenTopic(topic="orders", partitions=[0])]
    assert resume(every, asked) is None
    assert (len(every), every.partition_count) == (0, 0)


def test_after_the_last_epoch_comes_the_first() -> None:
    every = sessions()
    session = open_one(every, 0)
    assert session is not None
    session.epoch = EPOCH_MAX
    resume(every, request(session_id=session.session_id, epoch=EPOCH_MAX))
    assert session.epoch == 1


# --- against a naive model: a client that gets everything each time ------------------------------

PARTITIONS = st.integers(0, 3)
STATES = st.fixed_dictionaries(
    {},
    optional={
        number: st.tuples(st.sampled_from([0, 0, 0, 3]), st.integers(0, 2), st.booleans())
        for number in range(4)
    },
)
STEP = st.tuples(STATES, st.sets(PARTITIONS), st.sets(PARTITIONS))


def full_answer(
    session: FetchSession, state: dict[int, tuple[int, int, bool]]
) -> list[FetchableTopicResponse]:
    """What a full fetch of the session's partitions gives."""
    return [
        FetchableTopicResponse(
            topic=topic.topic,
            partitions=[data_of(one.partition, state) for one in topic.partitions],
        )
        for topic in session.topics()
    ]


def data_of(number: int, state: dict[int, tuple[int, int, bool]]) -> PartitionData:
    code, high_watermark, has_records = state.get(number, (0, 0, False))
    return PartitionData(
        partition_index=number,
        error_code=code,
        high_watermark=-1 if code else high_watermark,
        records=b"records" if has_records and not code else b"",
    )


def by_number(responses: list[FetchableTopicResponse]) -> dict[int, PartitionData]:
    return {one.partition_index: one for topic in responses for one in topic.partitions}


@given(st.lists(STEP, min_size=1, max_size=12))
def test_the_answers_of_a_session_add_up_to_full_answers(
    steps: list[tuple[dict[int, tuple[int, int, bool]], set[int], set[int]]],
) -> None:
    session = FetchSession(1, "ada", False)
    known: dict[int, int] = {}  # the high watermark that the client believes in
    wanted: set[int] = set()
    for state, added, forgotten in steps:
        session.update(
            request(*added).topics, [ForgottenTopic(topic="orders", partitions=[*forgotten])]
        )
        wanted = (wanted | added) - forgotten
        known = {number: mark for number, mark in known.items() if number in wanted}
        everything = full_answer(session, state)
        answer = by_number(session.news(everything))
        for number, data in answer.items():
            known[number] = data.high_watermark
        full = by_number(everything)
        assert full.keys() == wanted
        for number, data in full.items():
            if data.error_code or data.records:
                assert answer[number] == data
            assert known[number] == data.high_watermark
