"""The client's half of a share session with one leader: its epoch, and which partitions are in it.

Pure. The first fetch opens the session with epoch 0 and names all partitions; each further request
counts the epoch up and names changes only. Requests of one session never overlap.
"""

from collections.abc import Iterable

from millstream.broker.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from millstream.broker.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from millstream.queues.acknowledgements import (
    Partition,
    Settlement,
    Settlements,
    acknowledged_topics,
)

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1
FETCH_BYTES_MAX = 16 << 20
# Hand out as many records as were asked for, not whole batches (KIP-1206).
BY_RECORD = 1


class LeaderSession:
    def __init__(self, *, group: str, member_id: str) -> None:
        self._group, self._member_id = group, member_id
        self._epoch = OPENING_EPOCH
        self._known: frozenset[Partition] = frozenset()
        self._touched: frozenset[Partition] = frozenset()

    @property
    def partitions(self) -> frozenset[Partition]:
        """Those that were ever in the session: something of them may be held still."""
        return self._touched

    def fetch(
        self, wanted: frozenset[Partition], *, records_max: int, wait_ms: int
    ) -> ShareFetchRequest:
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=BY_RECORD,
            topics=_fetch_topics(wanted - self._known),
            forgotten_topics_data=_forgotten_topics(self._known - wanted),
        )
        self._known = wanted
        self._touched |= wanted
        return request

    def acknowledge(self, settlements: Settlements) -> ShareAcknowledgeRequest:
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            is_renew_ack=Settlement.RENEW in settlements.values(),
            topics=acknowledged_topics(settlements),
        )

    def close(self) -> ShareAcknowledgeRequest:
        """What is still held goes back at once, and the attempt does not count."""
        return ShareAcknowledgeRequest(
            group_id=self._group, member_id=self._member_id, share_session_epoch=CLOSING_EPOCH
        )

    def answered(self) -> None:
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lost(self) -> frozenset[Partition]:
        """It is over, here or there; the partitions whose locks went with it."""
        gone, self._known, self._touched = self._touched, frozenset(), frozenset()
        self._epoch = OPENING_EPOCH
        return gone


def _fetch_topics(partitions: Iterable[Partition]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, number in sorted(partitions):
        topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
        topic.partitions.append(FetchPartition(partition_index=number))
    return [*topics.values()]


def _forgotten_topics(partitions: Iterable[Partition]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, number in sorted(partitions):
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(number)
    return [*topics.values()]
