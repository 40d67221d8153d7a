"""What is said of a topic whose configs nobody can see."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.base.topic_check import check_topics
from millstream.base.topic_terms import COMPACTED, TopicTerms


class Refusing:
    """An admin client of a broker that answers with this error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def describe_configs(self, asked: list[Any]) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(KafkaException(KafkaError(self._code)))
        return dict.fromkeys(asked, answer)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "this client may not see them"),
        (KafkaError.UNSUPPORTED_VERSION, "the broker does not offer DescribeConfigs"),
        (KafkaError._UNSUPPORTED_FEATURE, "the broker does not offer DescribeConfigs"),
    ],
)
def test_a_topic_whose_configs_cannot_be_seen_is_a_warning(
    code: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"orders-{code}"
    terms = TopicTerms(name=topic, config=COMPACTED)
    check_topics(Refusing(code), [terms], {topic: 1})
    assert reason in caplog.text
    assert topic in caplog.text


def test_another_error_is_raised() -> None:
    terms = TopicTerms(name="orders", config=COMPACTED)
    with pytest.raises(KafkaException):
        check_topics(Refusing(KafkaError.UNKNOWN), [terms], {"orders": 1})
