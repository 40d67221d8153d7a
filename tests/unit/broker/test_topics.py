import asyncio
import gc
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed, DiskFull
from millstream.base.errors import MillstreamError
from millstream.broker.topic_config import InvalidConfig
from millstream.broker.topics import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    PARTITIONS_MAX,
    TOPIC_NAME_LENGTH_MAX,
    InternalTopic,
    InvalidPartitionCount,
    InvalidTopicName,
    StrayPartition,
    Topic,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    UnreadableRecord,
    check_topic_name,
)
from millstream.log.config import LogConfig
from tests.support.batches import batch
from tests.support.served_node import Serve, ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk


def names(served: ServedNode) -> set[str]:
    return {topic.name for topic in served.node.topics if not topic.is_internal}


def on_disk(served: ServedNode) -> set[str]:
    partitions = served.node.directory.partitions_on_disk()
    return {f"{name}-{number}" for name, number in partitions if name not in INTERNAL_TOPICS}


def sets(**overrides: str) -> "SetOverrides":
    return SetOverrides({key.replace("_", "."): value for key, value in overrides.items()})


class SetOverrides:
    def __init__(self, changes: dict[str, str]) -> None:
        self._changes = changes

    def __call__(self, overrides: dict[str, str]) -> dict[str, str]:
        return overrides | self._changes


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * TOPIC_NAME_LENGTH_MAX])
def test_a_name_of_letters_digits_dots_dashes_and_underscores_is_fine(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../up", "a b", "ä", "a\n", "x" * (TOPIC_NAME_LENGTH_MAX + 1)]
)
def test_any_other_name_is_refused_and_nothing_is_made(served: ServedNode, name: str) -> None:
    before = served.node.directory.disk.names(served.path)
    with pytest.raises(InvalidTopicName):
        served.create(name)
    assert served.node.directory.disk.names(served.path) == before


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_differ_only_in_dot_and_underscore_collide(
    served: ServedNode, first: str, second: str
) -> None:
    served.create(first)
    with pytest.raises(InvalidTopicName, match=r"only in '\.' and '_'"):
        served.create(second)


def test_colliding_names_that_come_at_the_same_time_collide_too(served: ServedNode) -> None:
    topics = served.node.topics

    async def both() -> Sequence[Topic | BaseException]:
        creations = (topics.create("a.b", 1, {}), topics.create("a_b", 1, {}))
        return await asyncio.gather(*creations, return_exceptions=True)

    first, second = served.run(both())
    assert isinstance(first, Topic)
    assert isinstance(second, InvalidTopicName)


# --- create -----------------------------------------------------------------------------------


def test_a_new_topic_is_found_by_name_and_by_id(served: ServedNode) -> None:
    topic = served.create("orders", 3)
    topics = served.node.topics
    assert topics.named("orders") is topics.with_id(topic.id) is topic
    assert topics.find("", topic.id) is topics.find("orders", bytes(16)) is topic
    assert len(topic.partitions) == 3
    assert on_disk(served) == {"orders-0", "orders-1", "orders-2"}


def test_what_is_not_there_is_named_in_the_error(served: ServedNode) -> None:
    topic = served.create("orders", 2)
    with pytest.raises(UnknownTopic, match="'nothing'"):
        served.node.topics.named("nothing")
    with pytest.raises(UnknownTopicId, match="0101"):
        served.node.topics.with_id(b"\x01" * 16)
    for number in (-1, 2):
        with pytest.raises(UnknownPartition, match=f"no partition {number}, there are 2"):
            topic.partition(number)


def test_a_topic_is_seen_only_once_it_is_durable(served: ServedNode) -> None:
    task = served.loop.create_task(served.node.topics.create("orders", 1, {}))
    served.turn(1)
    assert "orders" not in served.node.topics
    served.run(task)
    assert "orders" in served.node.topics


def test_of_two_that_create_one_topic_the_second_hears_that_it_exists(served: ServedNode) -> None:
    topics = served.node.topics

    async def both() -> Sequence[Topic | BaseException]:
        creations = (topics.create("orders", 1, {}), topics.create("orders", 2, {}))
        return await asyncio.gather(*creations, return_exceptions=True)

    first, second = served.run(both())
    assert isinstance(first, Topic)
    assert isinstance(second, TopicExists)
    assert on_disk(served) == {"orders-0"}


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1])
def test_the_number_of_partitions_has_limits(served: ServedNode, count: int) -> None:
    with pytest.raises(InvalidPartitionCount):
        served.create("orders", count)


def test_a_topic_with_a_config_that_is_not_allowed_is_not_created(served: ServedNode) -> None:
    with pytest.raises(InvalidConfig):
        served.create("orders", retention_ms="soon")
    assert not names(served)
    assert not on_disk(served)


def test_topics_come_back_with_ids_partitions_configs_and_records(serve: Serve) -> None:
    served = serve()
    topic = served.create("orders", 2, retention_ms="5000")
    served.produce(b"kept", partition=1)
    served.close()
    found = serve().node.topics.named("orders")
    assert (found.id, found.overrides) == (topic.id, {"retention.ms": "5000"})
    assert [partition.log.end_offset for partition in found.partitions] == [0, 1]
    assert found.partitions[0].log.config.retention_ms == 5_000


def test_a_disk_that_fills_up_at_any_step_of_a_creation_leaves_nothing(
    served: ServedNode, disk: SimulatedDisk
) -> None:
    failures = 0
    for step in range(100):
        disk.fill_at(disk.steps + step)
        try:
            served.create("orders", 3)
            break
        except DiskFull:
            failures += 1
        disk.heal()
        assert not names(served)
        assert not [name for name, _ in served.node.directory.logs if name == "orders"]
        assert len(served.create("other").partitions) == 1
        served.run(served.node.topics.delete(served.node.topics.named("other")))
    disk.heal()
    assert failures > 10
    assert names(served) == {"orders"}


# --- grow -------------------------------------------------------------------------------------


def test_a_topic_grows_and_stays_grown(serve: Serve) -> None:
    served = serve()
    topic = served.create("orders", 1)
    served.run(served.node.topics.add_partitions(topic, 3))
    assert len(topic.partitions) == 3
    served.crash()
    assert len(serve().node.topics.named("orders").partitions) == 3


@pytest.mark.parametrize("count", [0, 1, 2, PARTITIONS_MAX + 1])
def test_a_topic_cannot_shrink_stay_or_grow_without_end(served: ServedNode, count: int) -> None:
    topic = served.create("orders", 2)
    with pytest.raises(InvalidPartitionCount):
        served.run(served.node.topics.add_partitions(topic, count))
    assert len(topic.partitions) == 2


def test_new_partitions_are_seen_only_once_they_are_durable(served: ServedNode) -> None:
    topic = served.create("orders", 1)
    task = served.loop.create_task(served.node.topics.add_partitions(topic, 2))
    served.turn(1)
    assert len(topic.partitions) == 1
    served.run(task)
    assert len(topic.partitions) == 2


def test_growing_and_changing_the_config_at_once_loses_neither(serve: Serve) -> None:
    served = serve()
    topic, topics = served.create("orders", 1), served.node.topics

    async def both() -> None:
        change = topics.change_config(topic, sets(retention_ms="5000"))
        await asyncio.gather(change, topics.add_partitions(topic, 2))

    served.run(both())
    served.crash()
    found = serve().node.topics.named("orders")
    assert (len(found.partitions), found.overrides) == (2, {"retention.ms": "5000"})


# --- configuration ----------------------------------------------------------------------------


def test_a_changed_config_acts_at_once_and_outlives_a_crash(serve: Serve) -> None:
    served = serve()
    topic = served.create("orders", 2)
    served.run(served.node.topics.change_config(topic, sets(segment_bytes="2000")))
    assert {partition.log.config.segment_bytes for partition in topic.partitions} == {2000}
    served.crash()
    (partition, _) = serve().node.topics.named("orders").partitions
    assert partition.log.config.segment_bytes == 2000


def test_two_changes_at_once_both_last(serve: Serve) -> None:
    served = serve()
    topic, topics = served.create("orders"), served.node.topics

    async def both() -> None:
        changes = (sets(retention_ms="5000"), sets(segment_ms="6000"))
        await asyncio.gather(*(topics.change_config(topic, change) for change in changes))

    served.run(both())
    assert topic.overrides == {"retention.ms": "5000", "segment.ms": "6000"}
    served.crash()
    assert serve().node.topics.named("orders").overrides == topic.overrides


def test_an_override_wins_over_the_broker_and_the_broker_over_the_settings(serve: Serve) -> None:
    served = serve(retention_ms=1_000)
    topics = served.node.topics
    plain, special = served.create("plain"), served.create("special", retention_ms="3000")

    def retention(topic: Topic) -> int:
        return topic.partitions[0].log.config.retention_ms

    assert (retention(plain), retention(special)) == (1_000, 3_000)
    served.run(topics.change_broker_config(lambda _: {"log.retention.ms": "2000"}))
    assert (retention(plain), retention(special)) == (2_000, 3_000)
    assert retention(served.create("later")) == 2_000
    served.run(topics.change_config(special, lambda _: {}))
    assert retention(special) == 2_000
    served.crash()
    again = serve(retention_ms=1_000)
    assert retention(again.node.topics.named("plain")) == 2_000
    again.run(again.node.topics.change_broker_config(lambda _: {}))
    assert retention(again.node.topics.named("plain")) == 1_000
    again.crash()
    assert retention(serve(retention_ms=1_000).node.topics.named("plain")) == 1_000


def test_the_brokers_own_topics_keep_their_config(served: ServedNode) -> None:
    internal = served.node.topics.named(METADATA_TOPIC).partitions[0].log
    before = internal.config
    served.run(served.node.topics.change_broker_config(lambda _: {"log.retention.ms": "1"}))
    assert internal.config is before


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_the_brokers_own_topics_cannot_be_changed(served: ServedNode, name: str) -> None:
    topics = served.node.topics
    topic = topics.named(name)
    for change in (
        topics.delete(topic),
        topics.add_partitions(topic, 2),
        topics.change_config(topic, lambda _: {}),
    ):
        with pytest.raises(InternalTopic):
            served.run(change)
    with pytest.raises(TopicExists):
        served.create(name)


# --- delete -----------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_with_its_files_and_its_name_is_free(serve: Serve) -> None:
    served = serve()
    topic = served.create("orders", 2)
    served.produce(b"old")
    served.run(served.node.topics.delete(topic))
    assert not names(served)
    assert not on_disk(served)
    again = served.create("orders")
    assert again.id != topic.id
    assert again.partitions[0].log.end_offset == 0


def test_nothing_keeps_the_files_of_a_deleted_topic_open(served: ServedNode) -> None:
    """Their space would not be free before they are closed."""
    topic = served.create()
    served.produce(b"old")
    log = weakref.ref(topic.partitions[0].log)
    served.run(served.node.topics.delete(topic))
    del topic
    gc.collect()
    assert log() is None


def test_a_deletion_is_seen_only_once_it_is_durable(served: ServedNode) -> None:
    topic = served.create("orders")
    task = served.loop.create_task(served.node.topics.delete(topic))
    served.turn(1)
    assert "orders" in served.node.topics
    served.run(task)
    assert "orders" not in served.node.topics


def test_a_topic_object_that_waited_for_its_turn_does_not_hit_its_successor(
    served: ServedNode,
) -> None:
    topics, old = served.node.topics, served.create("orders")

    async def all_at_once() -> Sequence[object]:
        return await asyncio.gather(
            topics.delete(old),
            topics.create("orders", 1, {}),
            topics.delete(old),
            topics.add_partitions(old, 5),
            topics.change_config(old, sets(retention_ms="1")),
            return_exceptions=True,
        )

    _, new, *refused = served.run(all_at_once())
    assert served.node.topics.named("orders") is new
    assert [type(error) for error in refused] == [UnknownTopic] * 3


def test_who_waits_for_a_sync_of_a_deleted_topic_is_told(served: ServedNode) -> None:
    topic = served.create("orders")
    task = served.loop.create_task(served.node.topics.delete(topic))
    told: list[MillstreamError | None] = []
    topic.partitions[0].when_synced(99, told.append)
    served.run(task)
    assert [type(error) for error in told] == [UnknownTopic]


def test_a_produce_that_waits_while_its_topic_is_deleted_gets_an_answer(
    served: ServedNode,
) -> None:
    topic = served.create("orders")

    async def both() -> object:
        deletion = served.loop.create_task(served.node.topics.delete(topic))
        produce = await served.answer(produce_request(b"late"), 12)
        await deletion
        return produce

    served.run(both())
    served.settle()
    assert served.commit.unsynced_bytes == 0


class StubbornDisk(SimulatedDisk):
    """Does not give up the directories of deleted partitions, as long as it `is_stuck`."""

    is_stuck = False

    def rename(self, source: Path, target: Path) -> None:
        if self.is_stuck and target.name.endswith("-delete"):
            raise DiskFailed(path=source, action="renaming", error=OSError(5, "simulated"))
        super().rename(source, target)


def test_files_that_cannot_be_removed_neither_bring_a_topic_back_nor_stop_the_broker(
    serve: Serve, tmp_path: Path
) -> None:
    stubborn = StubbornDisk(tmp_path / "data")
    served = serve(disk=stubborn)
    served.create("other")
    topic = served.create()
    served.produce(b"old")
    stubborn.is_stuck = True
    with pytest.raises(DiskFailed):
        served.run(served.node.topics.delete(topic))
    with pytest.raises(StrayPartition):
        served.create("orders")
    served.crash()
    again = serve(disk=stubborn)
    assert names(again) == {"other"}
    again.crash()
    stubborn.is_stuck = False
    healed = serve(disk=stubborn)
    assert on_disk(healed) == {"other-0"}
    assert healed.create("orders").partitions[0].log.end_offset == 0


# --- strays and damage ------------------------------------------------------------------------


def leave_stray(serve: Serve, name: str, *values: bytes) -> None:
    """A partition's directory that no record names."""
    served = serve()
    log = served.node.directory.open_partition(
        (name, 0), LogConfig(), topic_id=bytes(16), now_ms=served.now_ms
    )
    if values:
        log.append(batch(*values), now_ms=served.now_ms)
    served.close()


def remove_stray(served: ServedNode, name: str) -> None:
    served.node.directory.delete_partition((name, 0))


def test_an_empty_directory_that_no_topic_names_is_removed(serve: Serve) -> None:
    leave_stray(serve, "ghost")
    assert not on_disk(serve())


def test_records_that_no_topic_names_are_left_alone_and_reported(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    leave_stray(serve, "ghost", b"old")
    served = serve()
    assert "ghost-0: holds records, but no topic names it" in caplog.text
    assert on_disk(served) == {"ghost-0"}
    remove_stray(served, "ghost")  # so that all there is can be closed


def test_a_new_topic_does_not_adopt_the_records_of_a_stray(serve: Serve) -> None:
    leave_stray(serve, "ghost", b"old")
    served = serve()
    with pytest.raises(StrayPartition, match="ghost-0: holds records"):
        served.create("ghost", 2)
    assert on_disk(served) == {"ghost-0"}
    remove_stray(served, "ghost")
    assert served.create("ghost").partitions[0].log.end_offset == 0


def test_a_topic_that_grows_does_not_adopt_them_either(serve: Serve) -> None:
    served = serve()
    topic = served.create("ghost", 1)
    log = served.node.directory.open_partition(
        ("ghost", 1), LogConfig(), topic_id=bytes(16), now_ms=served.now_ms
    )
    log.append(batch(b"old"), now_ms=served.now_ms)
    with pytest.raises(StrayPartition):
        served.run(served.node.topics.add_partitions(topic, 3))
    assert len(topic.partitions) == 1
    assert on_disk(served) == {"ghost-0", "ghost-1"}


def test_a_record_of_a_topic_that_cannot_be_read_stops_the_start(serve: Serve) -> None:
    served = serve()
    served.put(b"topic/orders", b"{")
    served.close()
    with pytest.raises(UnreadableRecord, match="'orders' cannot be read"):
        serve()


def test_a_broker_config_of_another_version_is_not_used(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve()
    served.put(b"broker-config/log.retention.ms", b"soon")
    served.close()
    with caplog.at_level(logging.WARNING):
        assert serve().node.topics.broker_overrides == {}
    assert "log.retention.ms is not used" in caplog.text


def test_the_offsets_topic_is_shown_like_any_other(served: ServedNode) -> None:
    assert served.node.topics.named(OFFSETS_TOPIC).is_internal
    assert served.node.topics.named(OFFSETS_TOPIC).overrides == {"cleanup.policy": "compact"}
