"""What classic members and their leader write into JoinGroup and SyncGroup, in both directions.

ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0-3, with topics by name;
inside a consumer group (KIP-848) topics have ids. Bytes that are something else are None here.
"""

from collections.abc import Iterable

from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.wire.codec import MalformedMessage
from millstream.broker.wire.frames import decode_versioned, encode_versioned
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from millstream.broker.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

VERSION_MAX = 3


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    try:
        _, subscription = decode_versioned(ConsumerProtocolSubscription, metadata)
    except MalformedMessage:
        return None
    return subscription


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """Without any bytes: nothing is assigned."""
    if not assignment:
        return ConsumerProtocolAssignment()
    try:
        _, assigned = decode_versioned(ConsumerProtocolAssignment, assignment)
    except MalformedMessage:
        return None
    return assigned


def write_assignment(
    partitions: Iterable[TopicIdPartition], catalog: TopicCatalog, *, subscription: bytes
) -> bytes:
    """In the version of the member's subscription, for that is one that it can read."""
    numbers: dict[str, list[int]] = {}
    for part in sorted(partitions):
        topic = catalog.with_id(part.topic_id)
        if topic is not None:
            numbers.setdefault(topic.name, []).append(part.partition)
    assigned = [AssignedTopic(topic=name, partitions=own) for name, own in numbers.items()]
    version = min(int.from_bytes(subscription[:2], "big"), VERSION_MAX)
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def partitions_of(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, catalog: TopicCatalog
) -> set[TopicIdPartition]:
    """Owned or assigned, of topics that exist."""
    named = (
        message.owned_partitions
        if isinstance(message, ConsumerProtocolSubscription)
        else message.assigned_partitions
    )
    found = ((catalog.named(one.topic), one.partitions) for one in named)
    return {
        TopicIdPartition(topic.id, number)
        for topic, numbers in found
        if topic is not None
        for number in numbers
    }
