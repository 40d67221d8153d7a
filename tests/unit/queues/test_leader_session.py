from millstream.broker.wire.messages.share_fetch import ShareFetchRequest
from millstream.queues.acknowledgements import Partition, Place, Settlement
from millstream.queues.leader_session import EPOCH_MAX, LeaderSession

JOBS = b"j" * 16
FIRST, SECOND = Partition(JOBS, 0), Partition(JOBS, 1)


def session() -> LeaderSession:
    return LeaderSession(group="queue.jobs", member_id="m")


def fetch(one: LeaderSession, *partitions: Partition) -> ShareFetchRequest:
    return one.fetch(frozenset(partitions), records_max=1, wait_ms=0)


def named(request: ShareFetchRequest) -> list[int]:
    return [part.partition_index for topic in request.topics for part in topic.partitions]


def forgotten(request: ShareFetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def test_the_first_fetch_opens_the_session_and_names_all_partitions() -> None:
    request = fetch(session(), FIRST, SECOND)
    assert (request.share_session_epoch, named(request)) == (0, [0, 1])


def test_later_requests_name_changes_only_and_count_the_epoch_up() -> None:
    one = session()
    fetch(one, FIRST)
    one.answered()
    request = fetch(one, FIRST)
    assert (request.share_session_epoch, named(request), forgotten(request)) == (1, [], [])
    one.answered()
    request = fetch(one, SECOND)
    assert (request.share_session_epoch, named(request), forgotten(request)) == (2, [1], [0])


def test_the_epoch_goes_on_after_the_largest_with_1() -> None:
    one = session()
    one._epoch = EPOCH_MAX
    one.answered()
    assert fetch(one).share_session_epoch == 1


def test_a_lost_session_is_opened_anew_and_says_what_it_held() -> None:
    one = session()
    fetch(one, FIRST)
    one.answered()
    fetch(one, SECOND)  # something of the first may still be held
    assert one.lost() == {FIRST, SECOND}
    request = fetch(one, SECOND)
    assert (request.share_session_epoch, named(request)) == (0, [1])


def test_an_acknowledgement_says_that_it_renews_when_it_does() -> None:
    one = session()
    place = Place(FIRST, 4)
    assert one.acknowledge({place: Settlement.RENEW}).is_renew_ack
    assert not one.acknowledge({place: Settlement.ACCEPT}).is_renew_ack


def test_no_more_jobs_are_handed_out_than_were_asked_for() -> None:
    request = session().fetch(frozenset([FIRST]), records_max=3, wait_ms=5)
    assert (request.max_records, request.share_acquire_mode, request.max_wait_ms) == (3, 1, 5)


def test_it_is_closed_with_epoch_minus_1() -> None:
    assert session().close().share_session_epoch == -1
