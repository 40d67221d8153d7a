from typing import Any

import pytest

from millstream.queues.asked import NAME_LENGTH_MAX, BadTerms
from millstream.queues.queue import Queue

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize(
    "terms",
    [
        {"values": "yaml"},
        {"attempts_max": 0},
        {"attempts_max": 11},
        {"attempts_max": "5"},
        {"lock": 0.001},
        {"lock": 3600.1},
        {"lock": "5s"},
        {"lock": float("nan")},
        {"retry_delay": -1},
        {"retry_delay": True},
        {"partitions": 0},
        {"prefetch": -1},
        {"prefetch": 1.5},
    ],
)
def test_terms_that_cannot_be_are_refused_at_once_and_named(terms: dict[str, Any]) -> None:
    [name] = terms
    with pytest.raises(BadTerms, match=f"^{name}="):
        Queue("jobs", NOWHERE, **terms)


@pytest.mark.parametrize("lock", [1, 3600, 2.5, None])
def test_terms_at_their_limits_are_taken(lock: float | None) -> None:
    assert Queue("a" * NAME_LENGTH_MAX, NOWHERE, lock=lock, attempts_max=10).attempts_max == 10


@pytest.mark.parametrize("name", ["", "my queue", "a/b", ".", "..", 7, "a" * (NAME_LENGTH_MAX + 1)])
def test_a_name_that_no_topic_can_have_is_refused(name: Any) -> None:
    with pytest.raises(BadTerms, match="queue's name"):
        Queue(name, NOWHERE)


def test_the_dead_letters_of_a_queue_are_no_queue() -> None:
    with pytest.raises(BadTerms, match="dead letters of queue 'mails'"):
        Queue("mails.dead", NOWHERE)


@pytest.mark.parametrize("timeout", ["5", -1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(timeout: Any) -> None:
    with Queue("jobs", NOWHERE) as queue, pytest.raises(BadTerms, match="timeout="):
        queue.get(timeout)


@pytest.mark.parametrize("values", [{"a": 1}, "ab", b"ab", 7])
def test_one_value_is_not_several(values: Any) -> None:
    with Queue("jobs", NOWHERE) as queue, pytest.raises(BadTerms, match="put_many was given one"):
        queue.put_many(values)
