"""What a job set aside: late events, exactly, and dead letters of its inputs. Asked of the broker.

Late events are of all the job's generations. Dead letters are those in the topics `<input>.dead`,
whoever put them there; a batch that was repeated may have put some twice.
"""

from collections.abc import Iterable, Mapping

from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.reading.late_events import LateTally
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX, TopicOffsets
from millstream.processing.reading.topic_read import TopicRead


class JobCounts:
    """Each look costs a few small requests, and the counts that were written since the last."""

    def __init__(
        self, brokers: str, client: Mapping[str, str], *, job: str, topics: Iterable[str]
    ) -> None:
        self._tally = LateTally(brokers, client, job=job)
        self._dead = [
            TopicRead(brokers=brokers, topics=(f"{topic}{DEAD_SUFFIX}",), client=client)
            for topic in sorted(set(topics))
        ]

    def late(self) -> int:
        return sum(sum(late.values()) for late in self._tally.counts().values())

    def dead(self) -> int:
        return sum(map(_records_in, self._dead))


def _records_in(read: TopicRead) -> int:
    try:
        there = TopicOffsets(read).available()
    except TopicNotFound:
        return 0
    return sum(len(within) for topic in there.values() for within in topic.partitions.values())
