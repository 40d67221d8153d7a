"""Groups of every kind, empty, with all that they need: limits, ids, and the topics as they are.

The one place that knows both the broker's topics and the groups' picture of them.
"""

import uuid

from millstream.base.clock import Clock
from millstream.broker.group_configs import GroupConfigs
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.group_state import GroupLimits
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog
from millstream.broker.share.share_group import ShareGroup
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.topics import METADATA_TOPIC, Topic, Topics


class NewGroups:
    """Makes groups. All of them share one catalog of topics."""

    def __init__(
        self, topics: Topics, *, limits: GroupLimits, configs: GroupConfigs, now_ms: Clock
    ) -> None:
        self._topics = topics
        self._catalog = TopicCatalog(map(_catalogued, topics))
        self._limits = limits
        self._configs = configs
        self._now_ms = now_ms

    def classic(self, group_id: str) -> ClassicGroup:
        now_ms = self._now_ms()
        return ClassicGroup(group_id, limits=self._limits, new_suffix=_new_id, now_ms=now_ms)

    def consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            catalog=self._catalog,
            limits=self._configs.limits_of(group_id),
            classic_limits=self._limits,
            new_member_id=_new_id,
        )

    def share(self, group_id: str) -> ShareGroup:
        limits = self._configs.share_limits_of(group_id)
        return ShareGroup(group_id, catalog=self._catalog, limits=limits)

    def streams(self, group_id: str) -> StreamsGroup:
        limits = self._configs.streams_limits_of(group_id)
        return StreamsGroup(group_id, catalog=self._catalog, limits=limits)

    def follow_topic(self, name: str) -> None:
        """The topic came, went or grew."""
        if name in self._topics:
            self._catalog.put(_catalogued(self._topics.named(name)))
        else:
            self._catalog.remove(name)


def _new_id() -> str:
    return str(uuid.uuid4())


def _catalogued(topic: Topic) -> CataloguedTopic:
    is_unreadable = topic.name == METADATA_TOPIC
    return CataloguedTopic(topic.name, topic.id, len(topic.partitions), is_unreadable)
