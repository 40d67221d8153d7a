"""Who shall read what: the question that an assignor answers, and the choice of the assignor."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition

Assignment = Mapping[str, frozenset[TopicIdPartition]]  # by member id


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignee:
    """A member as an assignor sees it: what it may read, and what it was to read before."""

    member_id: str
    instance_id: str | None = None
    topic_ids: frozenset[bytes]
    held: frozenset[TopicIdPartition] = frozenset()

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members come first, and keep their place when they return under another id."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignor = Callable[[Sequence[Assignee], TopicCatalog], Assignment]


def elect_assignor(choices: Iterable[str | None], default: str) -> str:
    """The one that most members ask for; most ask for none."""
    votes = Counter(choice for choice in choices if choice is not None)
    return max(sorted(votes), key=lambda name: votes[name], default=default)
