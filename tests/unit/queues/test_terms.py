import pytest

from millstream.queues.terms import DELIVERIES_MAX, QueueTerms, changes


def test_only_what_the_broker_knows_and_has_otherwise_is_changed() -> None:
    wanted = {"known": "new", "same": "as it is", "unknown": "to this broker"}
    present = {"known": "old", "same": "as it is", "other": "kept"}
    assert changes(wanted, present) == {"known": "new"}


def test_a_lock_is_set_only_if_it_was_asked_for() -> None:
    name = "share.record.lock.duration.ms"
    assert name not in QueueTerms(name="jobs").group_config()
    assert QueueTerms(name="jobs", lock_ms=1_500).group_config()[name] == "1500"


@pytest.mark.parametrize(("attempts", "limit"), [(1, 6), (5, 10), (DELIVERIES_MAX, 10)])
def test_the_broker_s_limit_leaves_room_above_the_queue_s(attempts: int, limit: int) -> None:
    config = QueueTerms(name="jobs", attempts_max=attempts).group_config()
    assert config["share.delivery.count.limit"] == str(limit)


def test_a_queue_has_a_group_and_a_dead_letter_topic_of_its_name() -> None:
    terms = QueueTerms(name="jobs")
    assert (terms.group, terms.dead_topic) == ("queue.jobs", "jobs.dead")
    assert terms.group_config()["errors.deadletterqueue.topic.name"] == "jobs.dead"
