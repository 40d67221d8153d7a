"""A broker that is away for a moment is asked again; an answer that is none is no answer."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError

from millstream.processing import kafka_clients
from millstream.processing.kafka_clients import (
    BrokerNotReached,
    BrokerNotReady,
    RefusedByBroker,
    answer_in,
    error_from,
    patiently,
)
from millstream.processing.reading.topic_offsets import is_unknown


class Away:
    """A broker that answers at the third time of asking."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked < 3:
            raise BrokerNotReached(brokers="127.0.0.1:9092", doing="describe topic orders")
        return "here"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PAUSE_SECONDS", 0.0)


def test_a_broker_that_is_away_is_asked_again() -> None:
    assert patiently(Away()) == "here"


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(BrokerNotReached):
        patiently(Away())


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError.NOT_COORDINATOR])
def test_a_broker_that_has_just_started_may_be_asked_again(code: int) -> None:
    error = error_from(KafkaError(code), doing="list offsets", brokers="127.0.0.1:9092")
    assert isinstance(error, BrokerNotReady)


def test_an_answer_that_never_comes_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE_SECONDS", 0.0)
    answer: Future[None] = Future()
    with pytest.raises(BrokerNotReached, match="Cannot create topic orders: no broker answers"):
        answer_in(answer, doing="create topic orders", brokers="127.0.0.1:9092")


def test_who_is_refused_does_not_ask_again() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise RefusedByBroker(doing="describe topic orders", code="29", reason="not allowed")

    with pytest.raises(RefusedByBroker):
        patiently(ask)
    assert asked == [1]


@pytest.mark.parametrize(
    ("offset", "unknown"), [(-1001, True), (-1, False), (0, False), (7, False)]
)
def test_an_offset_that_librdkafka_does_not_know_is_no_offset(offset: int, unknown: bool) -> None:
    assert is_unknown(offset) is unknown
