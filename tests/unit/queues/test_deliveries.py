import pytest

from millstream.base.record import Record
from millstream.broker.wire.messages.share_fetch import AcquiredRecords, PartitionData
from millstream.log.record_batch import (
    CorruptBatch,
    Marker,
    encode_batch,
    encode_marker,
    read_header,
    write_offset,
)
from millstream.queues.acknowledgements import Partition
from millstream.queues.deliveries import Acquired, acquired_from

JOBS = Partition(b"j" * 16, 3)


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    records = [Record(value=value, timestamp_ms=5) for value in values]
    return bytes(encode_batch(records, base_offset=base_offset))


def marker(offset: int) -> bytes:
    data = encode_marker(Marker(True, 0), producer_id=1, producer_epoch=0, now_ms=5)
    write_offset(memoryview(data), read_header(data), base_offset=offset, leader_epoch=0)
    return bytes(data)


def acquired(data: bytes, *spans: tuple[int, int, int]) -> Acquired:
    ranges = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in spans
    ]
    return acquired_from(JOBS, PartitionData(records=data, acquired_records=ranges))


def test_of_a_batch_only_what_was_acquired_is_delivered() -> None:
    given = acquired(batch(b"a", b"b", b"c"), (1, 1, 1))
    assert [(one.place.offset, one.record.value) for one in given.deliveries] == [(1, b"b")]
    assert not given.gaps


def test_each_delivery_knows_its_count_and_its_place() -> None:
    given = acquired(batch(b"a") + batch(b"b", base_offset=1), (0, 0, 1), (1, 1, 4))
    assert [one.count for one in given.deliveries] == [1, 4]
    assert {one.place.partition for one in given.deliveries} == {JOBS}


def test_an_acquired_offset_without_a_record_is_a_gap() -> None:
    given = acquired(batch(b"a") + marker(1) + batch(b"b", base_offset=5), (0, 5, 1))
    assert [one.place.offset for one in given.deliveries] == [0, 5]
    assert [place.offset for place in given.gaps] == [1, 2, 3, 4]


def test_nothing_acquired_is_nothing_delivered() -> None:
    assert acquired(batch(b"a")) == Acquired()


def test_a_batch_that_is_cut_off_delivers_nothing_of_itself() -> None:
    given = acquired(batch(b"a") + batch(b"b", base_offset=1)[:-3], (0, 0, 1))
    assert [one.record.value for one in given.deliveries] == [b"a"]


def test_damaged_records_are_not_delivered() -> None:
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        acquired(bytes(data), (0, 0, 1))
