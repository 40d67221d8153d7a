import pytest

from millstream.broker.metrics.answer_errors import errors_in
from millstream.broker.metrics.counts import ApiCounts
from millstream.broker.wire import RESPONSES, ErrorCode, Message
from millstream.broker.wire.messages.fetch import FetchResponse
from millstream.broker.wire.messages.heartbeat import HeartbeatResponse
from millstream.broker.wire.messages.metadata import MetadataResponse
from millstream.broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


def produce_answer(*codes: int) -> ProduceResponse:
    partitions = [
        PartitionProduceResponse(index=number, error_code=code) for number, code in enumerate(codes)
    ]
    topic = TopicProduceResponse(name="orders", partition_responses=partitions)
    return ProduceResponse(responses=[topic])


def test_an_answer_without_errors_has_none() -> None:
    assert errors_in(produce_answer(0, 0)) == []


def test_errors_are_found_in_every_partition() -> None:
    assert errors_in(produce_answer(3, 0, 3, 10)) == [3, 3, 10]


def test_an_error_of_the_whole_answer_is_found() -> None:
    assert errors_in(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)) == [22]
    assert errors_in(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)) == [70]


def test_a_list_that_is_null_has_no_errors() -> None:
    assert errors_in(MetadataResponse(topics=None)) == []  # type: ignore[arg-type] # on purpose


@pytest.mark.parametrize("answer", RESPONSES.values(), ids=lambda one: one.__name__)
def test_every_answer_can_be_looked_at(answer: type[Message]) -> None:
    assert errors_in(answer()) == []


def test_an_answer_is_counted_with_its_errors_size_and_time() -> None:
    counts = ApiCounts()
    counts.note_request(100)
    counts.note_answer(produce_answer(3, 3, 0), size_bytes=52, seconds=0.25)
    assert (counts.requests, counts.request_bytes, counts.response_bytes) == (1, 100, 52)
    assert counts.errors == {3: 2}
    assert (counts.seconds.count, counts.seconds.sum) == (1, 0.25)
