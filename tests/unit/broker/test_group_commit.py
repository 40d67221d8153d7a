import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.base.errors import MillstreamError
from millstream.broker.partition import ServedPartition
from millstream.broker.topics import UnknownTopic
from millstream.log.config import LogConfig
from millstream.log.partition_log import LogReadOnly
from tests.support.batches import batch
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode

# Synced after so many records, and never because of the time.
BY_COUNT = "1000"
Told = list[MillstreamError | None]


def append(served: ServedNode, partition: ServedPartition, told: Callable[..., None]) -> None:
    """As a produce request with acks=all does it."""
    appended = partition.append(batch(b"x" * 100), now_ms=served.now_ms)
    if not partition.is_durable(appended.end_offset):
        partition.when_synced(appended.end_offset, told)
    served.commit.mark(partition, appended.size_bytes)


def log_syncs(disk: GatedDisk, partition: ServedPartition) -> int:
    directory = partition.log.directory
    return sum(1 for path in disk.syncs if path.parent == directory and path.suffix == ".log")


def test_one_sync_serves_all_who_appended_in_one_round(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    (partition,) = served.create().partitions
    before, told = log_syncs(gate, partition), Told()
    for _ in range(50):
        append(served, partition, told.append)
    served.settle()
    assert told == [None] * 50
    assert log_syncs(gate, partition) - before == 1


def test_what_comes_during_a_sync_waits_for_the_next_and_shares_it(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    (partition,) = served.create().partitions
    order: list[str] = []
    gate.shut()
    append(served, partition, lambda _: order.append("first"))
    served.turn()
    gate.until_a_sync_waits()
    for name in ("second", "third"):
        append(served, partition, lambda _, name=name: order.append(name))
    served.turn()
    assert not order
    started = served.commit.counts.syncs
    gate.open_gate()
    served.settle()
    assert order == ["first", "second", "third"]
    assert served.commit.counts.syncs - started == 2


def test_a_partition_has_one_sync_at_a_time(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    (partition,) = served.create().partitions
    gate.shut()
    for _ in range(3):
        append(served, partition, lambda _: None)
        served.turn()
    gate.until_a_sync_waits()
    assert partition.log.sync_job() is None
    gate.open_gate()
    served.settle()
    assert not partition.log.has_unsynced


def test_partitions_are_synced_side_by_side(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    gate_order = served.create("orders", 3).partitions
    gate.shut()
    for partition in gate_order:
        append(served, partition, lambda _: None)
    served.turn()
    for _ in gate_order:
        gate.until_a_sync_waits()  # all three at the same time
    gate.open_gate()
    served.settle()


def test_a_failed_sync_tells_all_who_wait_also_those_behind_it(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate)
    (partition,) = served.create().partitions
    told = Told()
    gate.shut()
    append(served, partition, told.append)
    served.turn()
    gate.until_a_sync_waits()
    append(served, partition, told.append)
    gate.fail_syncs(lambda path: path.parent == partition.log.directory)
    gate.open_gate()
    served.settle()
    assert [type(error) for error in told] == [LogReadOnly] * 2
    assert served.commit.counts.failures == 1
    assert served.commit.unsynced_bytes == 0
    gate.heal()
    with pytest.raises(LogReadOnly):
        append(served, partition, told.append)
    served.crash()


def test_unsynced_bytes_return_to_zero(served: ServedNode) -> None:
    for partition in served.create("orders", 3).partitions:
        for _ in range(4):
            append(served, partition, lambda _: None)
    assert served.commit.unsynced_bytes > 1_200
    served.settle()
    assert served.commit.unsynced_bytes == 0


def test_a_roll_syncs_and_leaves_nothing_to_wait_for(served: ServedNode) -> None:
    (partition,) = served.create(segment_bytes="300").partitions
    told = Told()
    for _ in range(5):
        append(served, partition, told.append)
    served.settle()
    assert told == [None] * 5
    assert served.commit.unsynced_bytes == 0


def test_past_the_limit_it_is_full_and_calls_back_once_when_drained(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate, unsynced_bytes_max=300)
    (partition,) = served.create().partitions
    drained: list[int] = []
    gate.shut()
    append(served, partition, lambda _: None)
    assert not served.commit.is_full
    append(served, partition, lambda _: None)
    assert served.commit.is_full
    for number in (1, 2):
        served.commit.when_drained(lambda number=number: drained.append(number))
    served.turn()
    gate.until_a_sync_waits()
    assert not drained
    gate.open_gate()
    served.settle()
    assert drained == [1, 2]
    append(served, partition, lambda _: None)
    served.settle()
    assert drained == [1, 2]


def test_a_callback_may_ask_to_be_called_again(serve: Serve) -> None:
    served = serve(unsynced_bytes_max=100)
    (partition,) = served.create().partitions
    calls: list[str] = []

    def again() -> None:
        calls.append("drained")
        if len(calls) == 1:
            served.commit.when_drained(again)

    served.commit.when_drained(again)
    for _ in range(2):
        append(served, partition, lambda _: None)
        served.settle()
    assert calls == ["drained"] * 2


# --- by count and by the clock ----------------------------------------------------------------


def test_with_relaxed_settings_a_sync_comes_by_the_clock(serve: Serve) -> None:
    served = serve(is_relaxed=True, relaxed_sync_interval_ms=500)
    (partition,) = served.create().partitions
    append(served, partition, lambda _: None)
    served.settle()
    assert partition.log.high_watermark == 1
    assert partition.log.has_unsynced
    served.advance(0.4)
    served.commit.sync_due()
    served.settle()
    assert partition.log.has_unsynced
    served.advance(0.1)
    served.commit.sync_due()
    served.settle()
    assert not partition.log.has_unsynced
    assert served.commit.unsynced_bytes == 0


def test_with_flush_messages_a_sync_comes_by_count(served: ServedNode) -> None:
    (partition,) = served.create(flush_messages="3").partitions
    for _ in range(2):
        append(served, partition, lambda _: None)
    served.settle()
    assert partition.log.synced_offset == 0
    append(served, partition, lambda _: None)
    served.settle()
    assert partition.log.synced_offset == 3


def test_a_full_broker_syncs_every_partition_not_only_the_last_written(serve: Serve) -> None:
    """Else its producers would wait for a sync that nothing asks for."""
    served = serve(unsynced_bytes_max=1_000)
    partitions = served.create("orders", 9, flush_messages=BY_COUNT).partitions
    drained: list[bool] = []
    for partition in partitions:
        append(served, partition, lambda _: None)
    assert served.commit.is_full
    served.commit.when_drained(lambda: drained.append(True))
    served.settle()
    assert drained == [True]
    assert served.commit.unsynced_bytes == 0


def test_what_comes_during_a_sync_of_a_full_broker_is_synced_too(
    serve: Serve, gate: GatedDisk
) -> None:
    served = serve(disk=gate, unsynced_bytes_max=500)
    (partition,) = served.create(flush_messages=BY_COUNT).partitions
    gate.shut()
    for _ in range(2):
        append(served, partition, lambda _: None)
    served.turn()
    gate.until_a_sync_waits()
    for _ in range(2):
        append(served, partition, lambda _: None)
    assert served.commit.is_full
    gate.open_gate()
    served.settle()
    assert served.commit.unsynced_bytes == 0


def test_who_waits_is_served_although_the_settings_were_relaxed_meanwhile(
    served: ServedNode,
) -> None:
    (partition,) = served.create().partitions
    told = Told()
    append(served, partition, told.append)
    partition.log.config = LogConfig(flush_messages=1_000)
    served.settle()
    assert told == [None]


def test_the_bytes_of_a_deleted_partition_are_given_back(served: ServedNode) -> None:
    (partition,) = served.create(flush_messages=BY_COUNT).partitions
    append(served, partition, lambda _: None)
    served.settle()
    assert served.commit.unsynced_bytes > 0
    partition.close(UnknownTopic(topic="orders"))
    served.commit.sync_due()
    served.settle()
    assert served.commit.unsynced_bytes == 0


def test_closing_lets_the_syncs_under_way_finish(tmp_path: Path, gate: GatedDisk) -> None:
    (tmp_path / "data").mkdir()
    served = ServedNode(tmp_path / "data", disk=gate)
    (partition,) = served.create().partitions
    gate.shut()
    append(served, partition, lambda _: None)
    served.turn()
    gate.until_a_sync_waits()
    closing = served.loop.run_in_executor(None, served.commit.close)
    gate.open_gate()
    served.run(asyncio.wait_for(closing, None))
    served.turn()
    assert partition.log.synced_offset == 1
    served.crash()
