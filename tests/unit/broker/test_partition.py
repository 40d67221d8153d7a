from functools import partial
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed
from millstream.base.errors import MillstreamError
from millstream.broker.partition import ServedPartition
from millstream.broker.topics import UnknownTopic
from millstream.log.config import LogConfig
from tests.support.batches import NOW_MS, batch, open_log
from tests.support.simulated_disk import SimulatedDisk

RELAXED = LogConfig(flush_messages=100)


@pytest.fixture
def partition(tmp_path: Path) -> ServedPartition:
    log = open_log(SimulatedDisk(tmp_path), tmp_path / "orders-0")
    return ServedPartition(("orders", 0), log)


def append(partition: ServedPartition, *values: bytes) -> int:
    return partition.append(batch(*values), now_ms=NOW_MS).end_offset


def note(told: list[str], name: str, _: MillstreamError | None) -> None:
    told.append(name)


def sync(partition: ServedPartition) -> None:
    partition.log.sync(now_ms=NOW_MS)
    partition.settle()


def test_who_waits_is_told_in_the_order_of_the_appends(partition: ServedPartition) -> None:
    told: list[str] = []
    for name in "abc":
        partition.when_synced(append(partition, b"x"), partial(note, told, name))
    partition.settle()
    assert not told
    assert partition.has_waiting
    sync(partition)
    assert told == ["a", "b", "c"]
    assert not partition.has_waiting


def test_only_what_the_sync_covered_is_settled(partition: ServedPartition) -> None:
    told: list[str] = []
    partition.when_synced(append(partition, b"x"), lambda _: told.append("covered"))
    job = partition.log.sync_job()
    assert job is not None
    partition.when_synced(append(partition, b"y"), lambda _: told.append("later"))
    job.run()
    partition.log.complete(job, now_ms=NOW_MS)
    partition.settle()
    assert told == ["covered"]


def test_a_failure_is_told_to_all_who_wait(partition: ServedPartition) -> None:
    told: list[MillstreamError | None] = []
    for _ in range(2):
        partition.when_synced(append(partition, b"x"), told.append)
    cause = DiskFailed(path=Path("orders-0"), action="sync", error=OSError(5, "simulated"))
    partition.log.fail(cause)
    partition.settle()
    assert told == [partition.log.failure] * 2


def test_with_synced_acks_an_append_is_durable_after_its_sync(partition: ServedPartition) -> None:
    end_offset = append(partition, b"x")
    assert not partition.is_durable(end_offset)
    sync(partition)
    assert partition.is_durable(end_offset)


def test_with_relaxed_settings_an_append_may_be_acknowledged_at_once(
    partition: ServedPartition,
) -> None:
    partition.log.config = RELAXED
    assert partition.is_durable(append(partition, b"x"))


def test_readers_wake_when_records_become_visible_and_learn_how_many_bytes(
    partition: ServedPartition,
) -> None:
    news: list[int] = []
    partition.watchers.add(news.append)
    append(partition, b"x")
    partition.announce()
    assert not news
    sync(partition)
    size_bytes = partition.log.size_bytes
    assert news == [size_bytes]
    partition.announce()
    assert news == [size_bytes]


def test_with_relaxed_settings_readers_do_not_wait_for_a_sync(partition: ServedPartition) -> None:
    partition.log.config = RELAXED
    news: list[int] = []
    partition.watchers.add(news.append)
    append(partition, b"x")
    partition.announce()
    assert news == [partition.log.size_bytes]


def test_a_watcher_may_go_while_it_is_called(partition: ServedPartition) -> None:
    news: list[int] = []

    def watch_once(count: int) -> None:
        news.append(count)
        partition.watchers.discard(watch_once)

    partition.watchers.add(watch_once)
    for _ in range(2):
        append(partition, b"x")
        sync(partition)
    assert len(news) == 1


def test_closing_tells_those_who_wait_and_those_who_watch(partition: ServedPartition) -> None:
    told: list[MillstreamError | None] = []
    news: list[int] = []
    partition.when_synced(append(partition, b"x"), told.append)
    partition.watchers.add(news.append)
    reason = UnknownTopic(topic="orders")
    partition.close(reason)
    assert (told, news) == ([reason], [0])
    assert partition.is_closed


def test_a_callback_may_append_and_wait_again(partition: ServedPartition) -> None:
    told: list[str] = []

    def again(_: MillstreamError | None) -> None:
        told.append("first")
        partition.when_synced(append(partition, b"y"), lambda _: told.append("second"))

    partition.when_synced(append(partition, b"x"), again)
    sync(partition)
    assert told == ["first"]
    sync(partition)
    assert told == ["first", "second"]
