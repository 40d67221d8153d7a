"""The cluster as a server asks for it: for weeks, from many threads, through stalls of a broker."""

import threading
import time
from collections.abc import Callable, Iterable

from millstream.commands.cluster import Cluster, Group
from millstream.commands.connecting import ANSWER_SECONDS_MAX, Partition
from millstream.commands.consumer_groups import ConsumerGroups
from millstream.setting_kinds import Address

# A client may be freed when none of its requests can be under way any more: each ends after
# ANSWER_SECONDS_MAX, is tried once more by librdkafka, and is then waited for no longer.
LEFT_SECONDS = 4 * ANSWER_SECONDS_MAX


class ShownCluster(Cluster):
    """Asks for groups without librdkafka, whose own questions about them can end the process."""

    def __init__(self, brokers: tuple[Address, ...]) -> None:
        super().__init__(brokers)
        self._consumer_groups = ConsumerGroups(brokers)

    def group_names(self) -> list[str]:
        return self._consumer_groups.names()

    def groups(self, names: Iterable[str]) -> dict[str, Group]:
        return self._consumer_groups.described(names)

    def listed_groups(self, names: Iterable[str]) -> dict[str, Group]:
        return self._consumer_groups.listed(names)

    def committed(self, group: str) -> dict[Partition, int]:
        return self.committed_by([group])[group]

    def committed_by(self, groups: Iterable[str]) -> dict[str, dict[Partition, int]]:
        return self._consumer_groups.committed(groups)


class AnsweringCluster:
    """Called, the one that is asked at present. One that fell silent is replaced.

    Thread-safe. Those that were left are kept until their requests have ended.
    """

    def __init__(
        self,
        opened: Callable[[], ShownCluster],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._clock = opened, clock
        self._lock = threading.Lock()
        self._asked: ShownCluster | None = None
        self._left: list[tuple[float, ShownCluster]] = []

    def __call__(self) -> ShownCluster:
        now = self._clock()
        with self._lock:
            ended = [one for one in self._left if one[0] + LEFT_SECONDS <= now]
            self._left = [one for one in self._left if one not in ended]
            if self._asked is not None and self._asked.is_silent:
                self._left.append((now, self._asked))
                self._asked = None
            if self._asked is None:
                self._asked = self._open()
            asked = self._asked
        del ended  # outside of the lock: to free a client takes its time
        return asked
