"""The topics as a handler gets them: every name and id that a client brings is checked first.

A Topic in a handler's hands is one that the caller may use in this way, so what is done with it
afterwards needs no second question. Whether a topic exists is told only to who may know.
"""

from collections.abc import Iterator, Mapping

from millstream.broker.access.permit import AccessDenied, Permit
from millstream.broker.partition import ServedPartition
from millstream.broker.topics import Topic, Topics


class GuardedTopics:
    """Owned by its permit."""

    __slots__ = ("_permit", "_topics")

    def __init__(self, topics: Topics, permit: Permit) -> None:
        self._topics = topics
        self._permit = permit

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Topic]:
        """Those that the caller may see."""
        return (topic for topic in self._topics if self._permit.topics.shows(topic.name))

    def __contains__(self, name: str) -> bool:
        return name in self._topics and self._permit.topics.shows(name)

    def check(self, name: str) -> None:
        """Raise unless the caller may use a topic of this name, whether it exists or not."""
        self._permit.topics.check(name)

    def named(self, name: str) -> Topic:
        self._permit.topics.check(name)
        return self._topics.named(name)

    def with_id(self, topic_id: bytes) -> Topic:
        """An id is no secret: one that the caller may not use is denied, not unknown."""
        topic = self._topics.with_id(topic_id)
        self._permit.topics.check(topic.name)
        return topic

    def find(self, name: str, topic_id: bytes) -> Topic:
        """By id where the request has one, else by name."""
        return self.with_id(topic_id) if any(topic_id) else self.named(name)

    def may_use(self, name: str) -> bool:
        try:
            self._permit.topics.check(name)
        except AccessDenied:
            return False
        return True

    # --- change -------------------------------------------------------------------------------

    def check_new(self, name: str, partition_count: int, overrides: Mapping[str, str]) -> None:
        self._permit.check_new_topic(name)
        self._topics.check_new(name, partition_count, overrides)

    async def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str],
        *,
        partitions_max: int | None = None,
    ) -> Topic:
        self._permit.check_new_topic(name)
        return await self._topics.create(
            name, partition_count, overrides, partitions_max=partitions_max
        )

    def check_growth(self, topic: Topic, partition_count: int) -> None:
        self._topics.check_growth(topic, partition_count)

    async def add_partitions(self, topic: Topic, partition_count: int) -> None:
        await self._topics.add_partitions(topic, partition_count)

    async def delete(self, topic: Topic) -> None:
        await self._topics.delete(topic)

    def delete_records(self, partition: ServedPartition, before_offset: int) -> None:
        self._topics.delete_records(partition, before_offset)
