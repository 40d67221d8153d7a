"""Topics that clients name for the first time: how many one request creates, and how many in all.

A client that names thousands of topics gets the first of them; for the others it asks again, as
Kafka's clients do by themselves for a topic that is not there yet. A broker that has many
partitions already creates topics only for who says so (CreateTopics). The same bound holds for the
internal topics of Kafka Streams (api_88_streams_group_heartbeat.py), and for the dead-letter topics
of share groups (sharing/dead_letters.py).
"""

import logging

from millstream.base.errors import Retryable
from millstream.broker.handlers import Call
from millstream.broker.topics import TooManyPartitions, Topic, TopicExists

logger = logging.getLogger(__name__)

NO_MORE = (
    "new topics are not created for their first use (auto_create_partitions_max); create them "
    "(millstream topics create), or raise the limit"
)
NOT_ALL = (
    "a request names more new topics than one may create (auto_create_topics_per_request_max); the "
    "others come with the client's next requests"
)


class NotYetCreated(Retryable):
    def __init__(self, *, topic: str, limit: int) -> None:
        super().__init__(
            f"topic {topic!r} is not created by this request, which names many new ones "
            f"(auto_create_topics_per_request_max={limit}); ask again"
        )
        self.topic, self.limit = topic, limit


class AutoCreation:
    """What one request creates."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._config = call.node.config
        self._in_all_max = self._config.auto_create_partitions_max
        self._created = 0

    async def create(self, name: str) -> Topic:
        """The topic, or why there is none."""
        topics, partitions = self._call.topics, self._config.default_partitions
        try:
            topics.check_new(name, partitions, {})
            self._check_room(name, partitions)
            self._created += 1
            return await topics.create(name, partitions, {}, partitions_max=self._in_all_max)
        except TopicExists:  # another request was faster
            return topics.named(name)
        except TooManyPartitions:
            complain(self._call, NO_MORE)
            raise

    def _check_room(self, name: str, partitions: int) -> None:
        if not has_room(self._call, partitions):
            raise TooManyPartitions(topic=name, limit=self._in_all_max)
        at_once = self._config.auto_create_topics_per_request_max
        if self._created >= at_once:
            complain(self._call, NOT_ALL)
            raise NotYetCreated(topic=name, limit=at_once)


def has_room(call: Call, partitions: int) -> bool:
    """Whether clients may have so many more by naming topics."""
    in_all_max = call.node.config.auto_create_partitions_max
    return call.node.topics.partition_count + partitions <= in_all_max


def complain(call: Call, reason: str) -> None:
    """One line, however many topics and requests there are."""
    if line := call.node.complaints.about(call.peer.host, reason):
        logger.warning("client %s: %s", call.peer, line)
