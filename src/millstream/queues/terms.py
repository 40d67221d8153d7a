"""A queue's terms at the broker: its two topics, and the configuration of its group.

Set when a process first uses a queue. Its topics are left as they are; of the group's configuration
what differs is set anew, so that whoever came last has said it. Only what the broker knows is set,
so that the same code runs on Apache Kafka, which has no dead-letter topic of its own before 4.4.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import MillstreamError, Rejected
from millstream.base.topic_terms import DELETE, POLICY, TopicTerms
from millstream.queues.asked import DEAD_SUFFIX
from millstream.queues.client_trouble import NOBODY_ANSWERS, ClientTrouble

CONNECT_SECONDS_MAX = 10.0
CONNECT_TRY_SECONDS = 1.0  # then it is looked at what librdkafka has met so far
ANSWER_SECONDS_MAX = 30.0
GROUP_PREFIX = "queue."
# Kafka's bounds for share.delivery.count.limit. The broker's limit is above the queue's own, so
# that a job whose worker froze still comes back to one that writes a letter about it.
DELIVERIES_MAX = 10
DELIVERIES_SPARE = 5
# Letters stay, and are larger than their jobs: the largest record of a topic that nobody has
# configured (Kafka's message.max.bytes), and room for headers.
DEAD_TOPIC_CONFIG = {"retention.ms": "-1", "max.message.bytes": str(1_048_588 + (64 << 10))}


class CannotSetUp(Rejected):
    def __init__(self, *, queue: str, doing: str, reason: str) -> None:
        super().__init__(f"queue {queue}: cannot {doing}: {reason}")
        self.queue, self.doing, self.reason = queue, doing, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTerms:
    """What holds for everybody who uses the queue. None: as the broker has it."""

    name: str
    partitions: int | None = None
    lock_ms: int | None = None
    attempts_max: int = 5

    @property
    def group(self) -> str:
        return GROUP_PREFIX + self.name

    @property
    def dead_topic(self) -> str:
        return self.name + DEAD_SUFFIX

    def group_config(self) -> dict[str, str]:
        config = {
            "share.auto.offset.reset": "earliest",  # what was put before the first worker counts
            "share.isolation.level": "read_committed",  # a redrive is a transaction
            "share.renew.acknowledge.enable": "true",
            "share.delivery.count.limit": str(
                min(DELIVERIES_MAX, self.attempts_max + DELIVERIES_SPARE)
            ),
            "errors.deadletterqueue.topic.name": self.dead_topic,
        }
        if self.lock_ms is not None:
            config["share.record.lock.duration.ms"] = str(self.lock_ms)
        return config


def changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """What to set: of the names that the broker knows, those with another value."""
    return {
        name: value for name, value in wanted.items() if name in present and present[name] != value
    }


def set_up(terms: QueueTerms, config: Mapping[str, Any]) -> None:
    """Returns when the queue can be used."""
    import confluent_kafka.admin

    admin: Any = confluent_kafka.admin
    trouble = ClientTrouble(f"queue {terms.name}", config)
    client = admin.AdminClient(trouble.config)
    try:
        _create_topics(terms, admin, client, present=topics_seen(client, trouble))
        _configure_group(terms, admin, client)
    except confluent_kafka.KafkaException as error:
        raise _translated(error.args[0], terms, trouble) from error


def topics_seen(client: Any, trouble: ClientTrouble) -> Mapping[str, Any]:
    """The topics of the cluster; the first question of a client, which finds out if it can ask."""
    import confluent_kafka

    ends = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            topics: Mapping[str, Any] = client.list_topics(
                timeout=min(CONNECT_TRY_SECONDS, CONNECT_SECONDS_MAX)
            ).topics
            return topics
        except confluent_kafka.KafkaException as error:
            client.poll(0)
            if (cause := trouble.cause()) is not None:
                raise cause from error
            if error.args[0].name() not in NOBODY_ANSWERS or time.monotonic() > ends:
                raise


def _create_topics(
    terms: QueueTerms, admin: Any, client: Any, *, present: Mapping[str, Any]
) -> None:
    from millstream.base.topic_check import check_topics

    partitions = -1 if terms.partitions is None else terms.partitions
    wanted = [
        admin.NewTopic(terms.name, partitions, -1),
        admin.NewTopic(terms.dead_topic, 1, -1, config=DEAD_TOPIC_CONFIG),
    ]
    counts = {name: len(topic.partitions) for name, topic in present.items()}
    check_topics(client, _terms_of_topics(terms), counts)
    missing = [topic for topic in wanted if topic.topic not in present]
    if not missing:
        return
    for made in client.create_topics(missing, request_timeout=ANSWER_SECONDS_MAX).values():
        _unless_there_already(made)


def _terms_of_topics(terms: QueueTerms) -> list[TopicTerms]:
    """What is warned of in topics that exist. Compaction would remove jobs with the same key."""
    return [
        TopicTerms(
            name=terms.name, config={POLICY: DELETE}, partitions=terms.partitions, is_needed=False
        ),
        TopicTerms(name=terms.dead_topic, config=DEAD_TOPIC_CONFIG, is_needed=False),
    ]


def _unless_there_already(made: Any) -> None:
    import confluent_kafka

    try:
        made.result(ANSWER_SECONDS_MAX)
    except confluent_kafka.KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def _configure_group(terms: QueueTerms, admin: Any, client: Any) -> None:
    kind = admin.ResourceType.GROUP
    asked = client.describe_configs([admin.ConfigResource(kind, terms.group)])
    [answer] = asked.values()
    present = {name: one.value for name, one in answer.result(ANSWER_SECONDS_MAX).items()}
    entries = [
        admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
        for name, value in changes(terms.group_config(), present).items()
    ]
    if entries:
        resource = admin.ConfigResource(kind, terms.group, incremental_configs=entries)
        [set_] = client.incremental_alter_configs([resource]).values()
        set_.result(ANSWER_SECONDS_MAX)


def _translated(fault: Any, terms: QueueTerms, trouble: ClientTrouble) -> MillstreamError:
    if (unreached := trouble.error_from(fault)) is not None:
        return unreached
    reason = f"{fault.str()} ({fault.name()})"
    return CannotSetUp(queue=terms.name, doing="set it up", reason=reason)
