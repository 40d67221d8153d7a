"""Whose records the brokers refuse: of several brokers one may be full, and the others not."""

from millstream.broker.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.queues.broker_health import BrokerHealth, DiskSeen, topics_without_room


def disk(broker: str, usable_bytes: int, path: str = "/data") -> DiskSeen:
    return DiskSeen(broker=broker, path=path, usable_bytes=usable_bytes, total_bytes=1 << 30)


def led_by(**leaders: tuple[int, ...]) -> MetadataResponse:
    """Topics, and the leader of each partition."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=name,
                partitions=[
                    MetadataResponsePartition(partition_index=number, leader_id=node)
                    for number, node in enumerate(nodes)
                ],
            )
            for name, nodes in leaders.items()
        ]
    )


def health(metadata: MetadataResponse, disks: dict[int, list[DiskSeen]]) -> BrokerHealth:
    return BrokerHealth(
        disks=tuple(one for found in disks.values() for one in found),
        without_room=topics_without_room(metadata, disks),
    )


def test_a_full_broker_refuses_only_topics_of_which_it_leads_a_partition() -> None:
    disks = {1: [disk("one:9092", 0)], 2: [disk("two:9092", 1 << 29)]}
    found = health(led_by(orders=(2, 1), clicks=(2, 2)), disks)
    assert "its disk is full (/data of the broker at one:9092" in found.refusal_of({"orders"})
    assert found.refusal_of({"clicks"}) == ""
    assert len(found.troubles()) == 1  # said of the broker all the same


def test_a_broker_with_room_on_one_of_its_disks_takes_records() -> None:
    disks = {1: [disk("one:9092", 0), disk("one:9092", 1 << 29, "/more")]}
    assert health(led_by(orders=(1,)), disks).refusal_of({"orders"}) == ""


def test_of_a_broker_that_names_no_disks_nothing_is_said() -> None:
    assert health(led_by(orders=(1,)), {1: []}).refusal_of({"orders"}) == ""
