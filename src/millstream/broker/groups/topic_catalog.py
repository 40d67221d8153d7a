"""The topics as groups see them: names, ids, and how many partitions there are to hand out.

Filled by the shell, which tells the groups of each change; a group only asks.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id: another topic of the same name is another partition."""

    topic_id: bytes
    partition: int


def numbers_by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """As messages have them: for each topic, the numbers of its partitions, all in order."""
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return numbers


class CataloguedTopic(NamedTuple):
    name: str
    id: bytes
    partition_count: int
    is_unreadable: bool = False  # nobody may read it, so no pattern finds it


class TopicCatalog:
    """Every topic that a group may read, by name and by id."""

    def __init__(self, topics: Iterable[CataloguedTopic] = ()) -> None:
        self._by_name: dict[str, CataloguedTopic] = {}
        self._by_id: dict[bytes, CataloguedTopic] = {}
        for topic in topics:
            self.put(topic)

    def __iter__(self) -> Iterator[CataloguedTopic]:
        return iter(self._by_name.values())

    def named(self, name: str) -> CataloguedTopic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: bytes) -> CataloguedTopic | None:
        return self._by_id.get(topic_id)

    def put(self, topic: CataloguedTopic) -> None:
        """Add a topic, or what it has become."""
        self.remove(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic

    def remove(self, name: str) -> None:
        topic = self._by_name.pop(name, None)
        if topic is not None:
            del self._by_id[topic.id]

    def ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        """Of those that exist."""
        found = (self._by_name.get(name) for name in names)
        return frozenset(topic.id for topic in found if topic is not None)

    def partitions_of(self, topic_id: bytes) -> Iterator[TopicIdPartition]:
        topic = self._by_id.get(topic_id)
        for number in range(topic.partition_count if topic else 0):
            yield TopicIdPartition(topic_id, number)

    def hash_of(self, names: Iterable[str]) -> int:
        """An int64 that differs when one of these topics came, went or grew; 0 if none is there."""
        found = [topic for name in sorted(set(names)) if (topic := self._by_name.get(name))]
        if not found:
            return 0
        # Stored with the group: a value that is made otherwise rebalances all groups at a start.
        said = repr([(topic.name, topic.id.hex(), topic.partition_count) for topic in found])
        digest = hashlib.blake2b(said.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)
