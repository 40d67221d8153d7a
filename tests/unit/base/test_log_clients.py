"""What a client of the log does while a broker or a topic is not ready."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millstream.base.log_clients import LogNotReached, LogRefused, offset_bounds
from millstream.base.offsets import OffsetRange

PLACE = TopicPartition("clicks", 0)
CLIENT = {"bootstrap.servers": "127.0.0.1:1"}


class ScriptedConsumer:
    """Fails with each code in turn, and then answers."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return (3, 7)


@pytest.mark.parametrize(
    "codes",
    [
        [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE],
        [KafkaError.UNKNOWN_TOPIC_OR_PART],
        [KafkaError._TRANSPORT, KafkaError._TIMED_OUT],
    ],
    ids=["no leader yet", "just made", "broker away"],
)
def test_the_bounds_of_a_partition_that_is_not_ready_are_waited_for(codes: list[int]) -> None:
    assert offset_bounds(ScriptedConsumer(*codes), PLACE, CLIENT) == OffsetRange(start=3, end=7)


def test_the_wait_for_bounds_ends() -> None:
    never = ScriptedConsumer(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 10_000)
    with pytest.raises(LogNotReached, match=r"read clicks\[0\]"):
        offset_bounds(never, PLACE, CLIENT, patience_s=0.2)


def test_bounds_that_are_refused_are_not_waited_for() -> None:
    refused = ScriptedConsumer(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(LogRefused):
        offset_bounds(refused, PLACE, CLIENT)
