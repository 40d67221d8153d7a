"""What a job set aside: late events, exactly, and dead letters of its inputs. Asked of the broker.

Late events are of all the job's generations. Dead letters are the records of its inputs that are in
the topics `<input>.dead`, whoever put them there: each counts once.
"""

from collections.abc import Iterable, Mapping

from millstream.processing.reading.dead_letters import LetterTally
from millstream.processing.reading.late_events import LateTally


class JobCounts:
    """Each look costs a few small requests, and what was written since the last."""

    def __init__(
        self, brokers: str, client: Mapping[str, str], *, job: str, topics: Iterable[str]
    ) -> None:
        self._tally = LateTally(brokers, client, job=job)
        self._dead = [LetterTally(brokers, client, topic=topic) for topic in sorted(set(topics))]

    def late(self) -> int:
        return sum(sum(late.values()) for late in self._tally.counts().values())

    def dead(self) -> int:
        return sum(tally.count() for tally in self._dead)
