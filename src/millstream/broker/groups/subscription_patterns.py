"""Topics by pattern: the regular expressions (RE2) of a group's members, and what they match.

RE2 runs in linear time, so no pattern can hold up the broker. Its package is imported with the
first pattern: most groups have none.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from millstream.broker.groups.topic_catalog import TopicCatalog

COMPILED_MAX = 1_000

# Whether who brought a pattern may know of a topic. Access rules decide, whenever it is asked.
Sees: TypeAlias = Callable[[str], bool]


def sees_all(topic: str) -> bool:
    return True


def is_valid(pattern: str) -> bool:
    return _compile(pattern) is not None


def matches(pattern: str, topic: str) -> bool:
    """The whole name must match."""
    compiled = _compile(pattern)
    return compiled is not None and compiled.fullmatch(topic) is not None


@lru_cache(COMPILED_MAX)
def _compile(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None


class SubscriptionPatterns:
    """Each pattern that a member of the group has, with the topics that it matches now.

    It finds what the member sees who brought it. Who that is, is not stored: after a restart a
    pattern finds nothing new until one of its members is heard.
    """

    def __init__(self) -> None:
        self._topics: dict[str, frozenset[str]] = {}
        self._sees: dict[str, Sees] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __contains__(self, pattern: object) -> bool:
        return pattern in self._topics

    def topics_of(self, pattern: str | None) -> frozenset[str]:
        return self._topics.get(pattern, frozenset()) if pattern else frozenset()

    def put(self, pattern: str, topics: Iterable[str]) -> None:
        self._topics[pattern] = frozenset(topics)

    def has_viewer(self, pattern: str) -> bool:
        return pattern in self._sees

    def resolve(self, pattern: str, catalog: TopicCatalog, sees: Sees) -> None:
        """Internal topics, too, as in Kafka: clients that do not want them leave them out."""
        self._sees[pattern] = sees
        known = (topic.name for topic in catalog if not topic.is_unreadable)
        self.put(pattern, (name for name in known if self._finds(pattern, name)))

    def drop_missing(self, catalog: TopicCatalog) -> None:
        """Topics that are gone since this was stored."""
        for pattern, topics in self._topics.items():
            self._topics[pattern] = frozenset(name for name in topics if catalog.named(name))

    def _finds(self, pattern: str, topic: str) -> bool:
        sees = self._sees.get(pattern)
        return sees is not None and matches(pattern, topic) and sees(topic)

    def remove(self, pattern: str) -> None:
        self._topics.pop(pattern, None)
        self._sees.pop(pattern, None)

    def follow(self, topic: str, *, exists: bool) -> list[str]:
        """A topic came or went: the patterns of which that changes the topics."""
        changed = []
        for pattern, topics in self._topics.items():
            was_in = topic in topics
            is_in = exists and (was_in or self._finds(pattern, topic))
            if is_in != was_in:
                self._topics[pattern] = topics | {topic} if is_in else topics - {topic}
                changed.append(pattern)
        return changed
