from pathlib import Path

import pytest

from millstream.base.disk import DiskFull
from millstream.log.log_directory import RESERVE_FILE
from millstream.log.partition_log import LogReadOnly
from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk

MIB = 1 << 20


class TightDisk(SimulatedDisk):
    """Full, until somebody removes the reserve."""

    def remove(self, path: Path) -> None:
        super().remove(path)
        if path.name == RESERVE_FILE:
            self.heal()


def test_a_change_is_done_when_it_is_synced(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    state = served.node.metadata

    async def put() -> None:
        await state.put([(b"key", b"value")], now_ms=served.now_ms)

    gate.shut()
    task = served.start(put())
    gate.until_a_sync_waits()
    served.turn()
    assert not task.done()
    gate.open_gate()
    served.settle()
    assert task.done()
    assert (b"key", b"value") in list(state)
    assert b"key" in state


def test_a_removed_key_is_gone_also_after_a_restart(serve: Serve) -> None:
    served = serve()
    served.put(b"key", b"value")
    served.put(b"other", b"value")
    served.put(b"key", None)
    assert b"key" not in served.node.metadata
    served.crash()
    assert dict(serve().node.metadata) == {b"other": b"value"}


def test_a_failed_sync_fails_the_change_and_all_after_it(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    disk.fail_syncs(lambda path: path.suffix == ".log")
    with pytest.raises(LogReadOnly):
        served.put(b"key", b"value")
    disk.heal()
    with pytest.raises(LogReadOnly):
        served.put(b"key", b"value")
    served.crash()


def test_a_full_disk_refuses_changes_and_takes_them_again_when_it_has_room(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    disk.fill_at(disk.steps)
    with pytest.raises(DiskFull):
        served.put(b"key", b"value")
    assert b"key" not in served.node.metadata
    disk.heal()
    served.put(b"key", b"value")
    assert b"key" in served.node.metadata


def test_a_deletion_on_a_full_disk_uses_the_reserve(serve: Serve, tmp_path: Path) -> None:
    disk = TightDisk(tmp_path / "data")
    served = serve(disk=disk)
    topic = served.create("orders")
    assert disk.exists(tmp_path / "data" / RESERVE_FILE)
    disk.fill_at(disk.steps)
    with pytest.raises(DiskFull):
        served.put(b"key", b"value")
    served.run(served.node.topics.delete(topic))
    assert "orders" not in served.node.topics
    assert not disk.exists(tmp_path / "data" / RESERVE_FILE)


def test_records_can_be_deleted_on_a_full_disk(serve: Serve, tmp_path: Path) -> None:
    disk = TightDisk(tmp_path / "data")
    served = serve(disk=disk)
    (partition,) = served.create("orders").partitions
    served.produce(b"old")
    disk.fill_at(disk.steps)
    served.node.topics.delete_records(partition, 1)
    assert partition.log.start_offset == 1


def test_history_is_dropped_when_there_is_much_of_it(serve: Serve) -> None:
    served = serve()
    state, log = served.node.metadata, served.node.metadata.partition.log
    served.put(b"kept", b"here")
    for number in range(9):
        served.put(b"key", b"%d" % number * MIB)
    served.put(b"key", b"last")
    state.rewrite_if_worth_it(now_ms=served.now_ms)
    assert log.size_bytes < MIB
    assert dict(state) == {b"kept": b"here", b"key": b"last"}
    assert log.synced_offset == log.end_offset
    served.crash()
    assert dict(serve().node.metadata) == {b"kept": b"here", b"key": b"last"}


def test_a_little_history_stays(served: ServedNode) -> None:
    for number in range(10):
        served.put(b"key", b"%d" % number)
    served.node.metadata.rewrite_if_worth_it(now_ms=served.now_ms)
    assert served.node.metadata.partition.log.start_offset == 0


def test_a_full_disk_only_delays_the_dropping_of_history(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    for number in range(9):
        served.put(b"key", b"%d" % number * MIB)
    served.put(b"key", b"last")
    disk.fill_at(disk.steps)
    served.node.metadata.rewrite_if_worth_it(now_ms=served.now_ms)
    assert dict(served.node.metadata) == {b"key": b"last"}
    disk.heal()
    served.node.metadata.rewrite_if_worth_it(now_ms=served.now_ms)
    assert served.node.metadata.partition.log.size_bytes < MIB
    served.put(b"after", b"it")


def test_those_who_wait_while_history_is_dropped_are_told(serve: Serve, gate: GatedDisk) -> None:
    served = serve(disk=gate)
    state = served.node.metadata
    for number in range(9):
        served.put(b"key", b"%d" % number * MIB)

    async def put() -> None:
        await state.put([(b"key", b"last")], now_ms=served.now_ms)

    task = served.loop.create_task(put())
    served.turn(1)
    state.rewrite_if_worth_it(now_ms=served.now_ms)
    served.turn()
    assert task.done()
