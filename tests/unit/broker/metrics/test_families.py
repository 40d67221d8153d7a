"""Each family reads what the node has at that moment."""

from typing import Any

import millstream.broker.metrics.families  # noqa: F401 - fills the table of families
from millstream.base.disk import DiskFailed
from millstream.base.record import Record
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.metrics.family import FAMILIES, Family, Reading
from millstream.broker.metrics.histogram import Histogram
from millstream.log.record_batch import encode_batch
from tests.support.batches import batch
from tests.support.served_node import Serve, ServedNode


def family(name: str) -> Family:
    (found,) = (one for one in FAMILIES if one.name == name)
    return found


def read(served: ServedNode, name: str) -> dict[tuple[str, ...], Any]:
    readings: list[Reading] = family(name).read(served.node)
    return dict(readings)


def test_every_family_can_be_read_of_a_new_broker(served: ServedNode) -> None:
    for one in FAMILIES:
        for labels, value in one.read(served.node):
            assert len(labels) == len(one.labels), one.name
            assert isinstance(value, Histogram) == (one.kind == "histogram"), one.name


def test_a_topic_counts_what_all_its_partitions_received(served: ServedNode) -> None:
    served.create("orders", 2)
    served.produce(b"a", b"b", partition=0)
    served.produce(b"c", partition=1)
    assert read(served, "millstream_topic_received_records_total") == {("orders",): 3}
    sizes = read(served, "millstream_partition_size_bytes")
    total = sizes["orders", "0"] + sizes["orders", "1"]
    assert read(served, "millstream_topic_received_bytes_total") == {("orders",): total}


def test_a_deleted_topic_takes_its_series_with_it(served: ServedNode) -> None:
    topic = served.create("orders")
    served.produce(b"a")
    served.run(served.node.topics.delete(topic))
    assert read(served, "millstream_topic_received_records_total") == {}
    assert ("orders", "0") not in read(served, "millstream_partition_high_watermark")


def test_the_lag_is_never_below_nothing_and_not_of_topics_that_are_gone(
    served: ServedNode,
) -> None:
    served.create("orders")
    served.produce(b"a", b"b")
    offsets = served.node.groups.find_or_create("billing").offsets
    offsets.commit(TopicPartition("orders", 0), CommittedOffset(offset=1, committed_ms=0))
    offsets.commit(TopicPartition("orders", 7), CommittedOffset(offset=1, committed_ms=0))
    offsets.commit(TopicPartition("gone", 0), CommittedOffset(offset=1, committed_ms=0))
    assert read(served, "millstream_group_lag_records") == {("billing", "orders", "0"): 1}
    offsets.commit(TopicPartition("orders", 0), CommittedOffset(offset=99, committed_ms=0))
    assert read(served, "millstream_group_lag_records") == {("billing", "orders", "0"): 0}


def test_a_log_that_failed_is_counted_as_read_only(served: ServedNode) -> None:
    topic = served.create("orders")
    assert read(served, "millstream_read_only_partitions") == {(): 0}
    log = topic.partitions[0].log
    log.fail(DiskFailed(path=log.directory, action="sync", error=OSError(5, "EIO")))
    assert read(served, "millstream_read_only_partitions") == {(): 1}
    served.crash()  # such a log cannot be closed cleanly


def test_a_retried_batch_is_counted_once(served: ServedNode) -> None:
    topic = served.create("orders")
    partition = topic.partitions[0]
    for _ in range(2):
        retried = batch(b"a", b"b", producer_id=1, producer_epoch=0, sequence=0)
        partition.append(retried, now_ms=served.now_ms)
    assert read(served, "millstream_topic_received_records_total") == {("orders",): 2}


def test_what_of_a_compacted_log_is_dirty_is_told(served: ServedNode) -> None:
    topic = served.create("prices", cleanup_policy="compact")
    log = topic.partitions[0].log
    name = "millstream_partition_dirty_ratio"
    assert read(served, name) == {("prices", "0"): 0.0}
    keyed = encode_batch([Record(key=b"k", value=b"a", timestamp_ms=served.now_ms)])
    log.append(memoryview(keyed), now_ms=served.now_ms)
    log.sync(now_ms=served.now_ms)
    log.roll(now_ms=served.now_ms)
    assert read(served, name) == {("prices", "0"): 1.0}


def test_syncs_have_a_duration_and_a_size(serve: Serve) -> None:
    served = serve()
    served.create("orders")
    before = read(served, "millstream_sync_size_bytes")[()].count
    served.produce(b"a")
    sizes = read(served, "millstream_sync_size_bytes")[()]
    assert sizes.count == before + 1
    assert read(served, "millstream_sync_duration_seconds")[()].count == sizes.count


def test_a_share_group_lags_by_what_is_not_done(served: ServedNode) -> None:
    topic = served.create("orders")
    served.produce(b"a", b"b", b"c")
    place = TopicIdPartition(topic.id, 0)
    served.run(served.node.share_partitions.set_start("packing", {place: 1}))
    where = ("packing", "orders", "0")
    assert read(served, "millstream_share_group_start_offset") == {where: 1}
    assert read(served, "millstream_share_group_pending_records") == {where: 0}
    assert read(served, "millstream_group_lag_records") == {where: 2}
