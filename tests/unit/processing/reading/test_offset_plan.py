"""What a stream reads next, decided without a broker and without Spark."""

import pytest

from millstream.base.offsets import OffsetRange
from millstream.processing.reading.offset_plan import (
    Available,
    AvailableTopic,
    NotAPosition,
    Partition,
    Position,
    TopicPosition,
    admit,
    advance,
    clock_in,
    losses_of,
    position_from,
    position_json,
    ranges_between,
    records_max_for,
    split,
    total,
    unread,
    up_to,
)


def orders(*ranges: tuple[int, int], topic_id: str = "a") -> Available:
    partitions = {number: span(*found) for number, found in enumerate(ranges)}
    return {"orders": AvailableTopic(topic_id=topic_id, partitions=partitions)}


def at(*offsets: int, topic_id: str = "a") -> Position:
    return {"orders": TopicPosition(topic_id=topic_id, offsets=dict(enumerate(offsets)))}


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


def part(number: int) -> Partition:
    return Partition("orders", number)


def test_a_position_survives_its_json() -> None:
    assert position_from(position_json(at(3, 5))) == at(3, 5)
    assert position_json(at(3)) == {"orders": {"id": "a", "offsets": {"0": 3}}}


@pytest.mark.parametrize("found", [{"index": 7}, {"orders": {"0": 7}}, {"orders": {"id": 1}}])
def test_the_checkpoint_of_another_source_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(NotAPosition, match="a checkpoint of its own"):
        position_from(found)


def test_unread_is_what_lies_beyond_the_position() -> None:
    assert unread(at(3, 5), orders((0, 10), (0, 5))) == {part(0): span(3, 10)}


def test_a_new_partition_is_owed_from_its_first_offset() -> None:
    assert unread(at(10), orders((0, 10), (0, 4))) == {part(1): span(0, 4)}
    assert list(ranges_between(at(10), at(10, 4))) == [(part(1), span(0, 4))]


def test_a_topic_that_appears_is_owed_whole() -> None:
    assert unread({}, orders((0, 4))) == {part(0): span(0, 4)}


def test_nothing_is_lost_while_all_that_is_owed_is_there() -> None:
    assert losses_of(at(3, 5), orders((3, 10), (0, 5))) == {}


def test_records_that_retention_took_are_a_loss() -> None:
    assert losses_of(at(3), orders((7, 10))) == {
        "orders[0]": "offsets [3, 7) were deleted by retention"
    }


def test_the_first_records_of_a_new_partition_can_be_lost_too() -> None:
    assert "orders[1]" in losses_of(at(3), orders((3, 10), (2, 4)))


def test_a_partition_that_ends_before_the_position_is_a_loss() -> None:
    assert "it was cut" in losses_of(at(12), orders((0, 10)))["orders[0]"]


def test_a_topic_of_another_id_is_a_loss_though_its_offsets_would_fit() -> None:
    assert "another one of that name" in losses_of(at(3), orders((0, 10), topic_id="b"))["orders"]


def test_a_deleted_topic_is_a_loss() -> None:
    assert losses_of(at(3), {}) == {"orders": "the topic was deleted"}


def test_who_skips_losses_goes_on_with_what_is_left() -> None:
    assert unread(at(3), orders((7, 10))) == {part(0): span(7, 10)}
    assert unread(at(12), orders((0, 10))) == {part(0): span(0, 10)}
    assert unread(at(3), orders((0, 10), topic_id="b")) == {part(0): span(0, 10)}


def test_a_replaced_topic_is_read_from_its_start() -> None:
    replaced = at(4, topic_id="b")
    assert list(ranges_between(at(9), replaced)) == [(part(0), span(0, 4))]


def test_without_a_limit_all_is_admitted() -> None:
    backlog = unread(at(0, 0), orders((0, 10), (0, 30)))
    assert admit(backlog, records_max=None) == backlog
    assert admit(backlog, records_max=40) == backlog


def test_a_limit_is_divided_by_what_waits_in_each_partition() -> None:
    backlog = unread(at(0, 0), orders((0, 1_000), (0, 3_000)))
    admitted = admit(backlog, records_max=400)
    assert [len(within) for within in admitted.values()] == [100, 299]  # rounded down


def test_every_partition_advances_however_small_the_limit() -> None:
    backlog = unread(at(0, 0, 0), orders((0, 1), (0, 1_000_000), (0, 5)))
    assert [len(within) for within in admit(backlog, records_max=1).values()] == [1, 1, 1]


@pytest.mark.parametrize("records_max", [2, 3, 7, 99, 100, 1_000])
def test_never_more_than_the_limit(records_max: int) -> None:
    backlog = unread(at(0, 0), orders((0, 17), (0, 1_234)))
    assert 2 <= total(admit(backlog, records_max=records_max)) <= records_max


def test_batch_after_batch_reads_everything_once() -> None:
    there, position = orders((0, 17), (5, 100)), at(0, 5)
    read: list[tuple[int, int]] = []
    while backlog := unread(position, there):
        before = position
        position = advance(position, there, admit(backlog, records_max=10))
        for where, within in ranges_between(before, position):
            read += [(where.number, offset) for offset in range(within.start, within.end)]
    assert sorted(read) == [(0, o) for o in range(17)] + [(1, o) for o in range(5, 100)]


def test_an_idle_stream_stays_where_it_is() -> None:
    assert advance(at(10, 4), orders((0, 10), (2, 4)), {}) == at(10, 4)


def test_a_partition_that_a_broker_has_not_heard_of_yet_is_not_read_again_later() -> None:
    grown, stale = orders((0, 12), (0, 4)), orders((0, 12))
    position = advance(at(10, 4), stale, unread(at(10, 4), stale))
    assert position == at(12, 4)
    assert unread(position, grown) == {}


def test_a_replaced_topic_keeps_nothing_of_the_partitions_of_the_one_before() -> None:
    replaced = orders((0, 2), topic_id="b")
    assert advance(at(10, 4), replaced, {}) == at(0, topic_id="b")


def test_bytes_bound_a_batch_by_the_weight_of_its_records() -> None:
    backlog = unread(at(0), orders((0, 1_000)))
    limits = {"records_max": None, "bytes_max": 10_000}
    assert records_max_for(backlog, **limits, record_bytes=100.0) == 100
    assert records_max_for(backlog, **limits, record_bytes=5.0) is None
    assert records_max_for(backlog, records_max=50, bytes_max=10_000, record_bytes=100.0) == 50


def test_one_record_that_is_larger_than_the_limit_still_passes() -> None:
    backlog = unread(at(0), orders((0, 1_000)))
    assert records_max_for(backlog, records_max=None, bytes_max=10, record_bytes=1e6) == 1


def test_a_stream_with_an_end_reads_no_further() -> None:
    backlog = unread(at(0, 8), orders((0, 10), (0, 10)))
    assert up_to({part(0): 6, part(1): 6}, backlog) == {part(0): span(0, 6)}


@pytest.mark.parametrize("tasks_min", [1, 2, 3, 7])
def test_split_ranges_are_the_same_offsets_in_more_tasks(tasks_min: int) -> None:
    whole = [(part(0), span(3, 20)), (part(1), span(0, 2))]
    pieces = split(whole, tasks_min=tasks_min)
    assert len(pieces) >= tasks_min
    assert [(p, o) for p, w in pieces for o in range(w.start, w.end)] == [
        (p, o) for p, w in whole for o in range(w.start, w.end)
    ]


def test_the_clock_of_an_idle_source_is_beside_its_topics() -> None:
    position = {"orders": TopicPosition(topic_id="a", offsets={0: 5})}
    told = position_json(position, clock_ms=17)
    assert told == {"@clock": 17, "orders": {"id": "a", "offsets": {"0": 5}}}
    assert (position_from(told), clock_in(told)) == (position, 17)
    assert clock_in(position_json(position)) is None


def test_a_clock_that_is_no_number_is_no_position() -> None:
    with pytest.raises(NotAPosition):
        clock_in({"@clock": "noon"})
