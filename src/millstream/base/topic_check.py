"""Asks a broker what a topic is like, and compares it with its terms (`topic_terms.py`).

Raises librdkafka's errors as they are: each caller has its own words for them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from millstream.base.librdkafka import NO_SUCH_TOPIC, admin_api
from millstream.base.topic_terms import TopicTerms, judged

logger = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 60.0
NOT_ALLOWED: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
# Of a broker that does not tell configs: librdkafka's own word first, then Kafka's.
NOT_OFFERED: Final = ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION")

_warned: set[str] = set()


def check_topics(admin: Any, wanted: Sequence[TopicTerms], partitions: Mapping[str, int]) -> None:
    """Raises UnfitTopic for the first one that would lose what it must keep; warns of the rest.

    `partitions`: how many each topic has; one that is not in it does not exist.
    """
    there = [terms for terms in wanted if terms.name in partitions]
    configs = _configs(admin, [terms.name for terms in there])
    for terms in there:
        found = configs.get(terms.name)
        if found is not None:
            _warn(judged(terms, partitions=partitions[terms.name], config=found))


def _configs(admin: Any, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Without the topics that are gone, and those whose configs the caller may not see."""
    api = admin_api()
    asked = [api.ConfigResource(api.ResourceType.TOPIC, topic) for topic in dict.fromkeys(topics)]
    found: dict[str, dict[str, str]] = {}
    if not asked:
        return found
    for resource, answer in admin.describe_configs(asked).items():
        try:
            entries = answer.result(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].name() in NOT_ALLOWED:
                _warn([_unseen(resource.name)])
            elif error.args[0].name() in NOT_OFFERED:
                _warn([_unknown(resource.name)])
            elif error.args[0].name() not in NO_SUCH_TOPIC:
                raise
            continue
        found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
    return found


def _unseen(topic: str) -> str:
    return (
        f"The configs of topic {topic} cannot be compared with what it must be: this client may "
        f"not see them. Run `millstream acls add --principal USER --operation describe-configs "
        f"--topic {topic}`"
    )


def _unknown(topic: str) -> str:
    return (
        f"The configs of topic {topic} cannot be compared with what it must be: the broker does "
        "not offer DescribeConfigs. Look at its cleanup.policy and retention yourself"
    )


def _warn(warnings: Iterable[str]) -> None:
    """Once for each process: a job asks at every start, a task for every letter."""
    for warning in warnings:
        if warning not in _warned:
            _warned.add(warning)
            logger.warning("%s", warning)
