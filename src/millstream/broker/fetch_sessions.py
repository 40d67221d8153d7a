"""Fetch sessions (KIP-227): what a consumer fetches from, so that requests name changes only.

A full Fetch (epoch 0) opens a session; each further Fetch says the session's next epoch, and which
partitions came, changed or went. Its answers hold the partitions with something new. Values in,
values out: the handler reads the records, and asks for permission each time (api_01_fetch.py).
Nothing is stored: after a restart a session is unknown, and its client opens another one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from millstream.base.errors import Rejected
from millstream.broker.topics import TOPIC_NAME_LENGTH_MAX
from millstream.broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NO_SESSION = 0
OPENING_EPOCH = 0
FIRST_EPOCH = 1
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 1_000  # max.incremental.fetch.session.cache.slots
# Of all sessions together: some 500 bytes each, and the name of its topic, which is no longer than
# a topic's can be: with a longer one there is no session.
PARTITIONS_MAX = 200_000
# Of one: a request of fifty bytes makes the broker look at all of them, while others wait.
SESSION_PARTITIONS_MAX = 10_000
# When there is no room for another session, one may go that was not used for so long; or one that
# is as old as that, for one with more partitions, which saves more (KIP-227).
IDLE_MS = 120_000
# How long it is remembered that there is no smaller one: it is looked for among all of them.
SEARCH_EVERY_MS = 1_000


class FetchSessionNotFound(Rejected):
    def __init__(self, *, session_id: int) -> None:
        super().__init__(f"there is no fetch session {session_id}; open one with epoch 0")
        self.session_id = session_id


class InvalidFetchSessionEpoch(Rejected):
    def __init__(self, *, session_id: int, epoch: int, expected: int) -> None:
        super().__init__(
            f"fetch session {session_id}: epoch {epoch} came, {expected} was expected; "
            "open a new session with epoch 0"
        )
        self.session_id, self.epoch, self.expected = session_id, epoch, expected


class FetchSessionTopicIds(Rejected):
    """It was opened in a version that names topics, and goes on in one with ids; or vice versa."""

    def __init__(self, *, session_id: int) -> None:
        super().__init__(f"fetch session {session_id} changed between names and ids of topics")
        self.session_id = session_id


class PartitionKey(NamedTuple):
    topic: str
    topic_id: bytes
    number: int


UNKNOWN = -1


@dataclass(slots=True)
class SessionPartition:
    """What the client wants of a partition, and what it knows of it besides its records."""

    wanted: FetchPartition
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN

    def is_news(self, data: PartitionData) -> bool:
        """Whether the client must hear of it; it knows then. An error is news every time."""
        if data.error_code:
            self.high_watermark = UNKNOWN
            return True
        if (
            self.high_watermark == data.high_watermark
            and self.last_stable_offset == data.last_stable_offset
            and self.log_start_offset == data.log_start_offset
        ):
            return bool(data.records)
        self.high_watermark = data.high_watermark
        self.last_stable_offset = data.last_stable_offset
        self.log_start_offset = data.log_start_offset
        return True


@dataclass(slots=True)
class FetchSession:
    """`epoch` is the one that the next request must say."""

    session_id: int
    owner: str  # whose principal
    has_topic_ids: bool
    epoch: int = FIRST_EPOCH
    opened_ms: int = 0
    used_ms: int = 0
    # In the order in which they are read: those that gave records last come last.
    partitions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    _topics: list[FetchTopic] | None = None  # made when they are asked for, until they change

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic]) -> None:
        for topic in topics:
            for wanted in topic.partitions:
                key = PartitionKey(topic.topic, topic.topic_id, wanted.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = SessionPartition(wanted)
                    self._topics = None
                else:  # in place: most requests move a partition or two of hundreds
                    known.wanted.fetch_offset = wanted.fetch_offset
                    known.wanted.current_leader_epoch = wanted.current_leader_epoch
                    known.wanted.partition_max_bytes = wanted.partition_max_bytes
        for gone in forgotten:
            self._topics = None
            for number in gone.partitions:
                self.partitions.pop(PartitionKey(gone.topic, gone.topic_id, number), None)

    def advance(self) -> None:
        self.epoch = FIRST_EPOCH if self.epoch == EPOCH_MAX else self.epoch + 1

    def topics(self) -> list[FetchTopic]:
        """All that it fetches, in its order; a topic may come more than once."""
        if self._topics is None:
            runs = groupby(self.partitions.items(), key=lambda item: item[0][:2])
            self._topics = [
                FetchTopic(topic=name, topic_id=topic_id, partitions=[one.wanted for _, one in run])
                for (name, topic_id), run in runs
            ]
        return self._topics

    def news(
        self, responses: Iterable[FetchableTopicResponse], *, is_full: bool = False
    ) -> list[FetchableTopicResponse]:
        """What of an answer the client does not know yet.

        If the answer `is_full`, those that gave records are read last from now on: else the
        others might wait for ever.
        """
        if is_full:
            self._topics = None
        found = []
        for topic in responses:
            partitions = [*self._news_of(topic, is_full)]
            if partitions:
                found.append(
                    FetchableTopicResponse(
                        topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                    )
                )
        return found

    def take_back(self, responses: Iterable[FetchableTopicResponse]) -> None:
        """The client did not hear of these: they are news again."""
        for topic in responses:
            for data in topic.partitions:
                key = PartitionKey(topic.topic, topic.topic_id, data.partition_index)
                if own := self.partitions.get(key):
                    own.high_watermark = UNKNOWN

    def _news_of(self, topic: FetchableTopicResponse, is_full: bool) -> Iterator[PartitionData]:
        for data in topic.partitions:
            key = PartitionKey(topic.topic, topic.topic_id, data.partition_index)
            own = self.partitions.get(key)
            if own is None or own.is_news(data):
                yield data
            if is_full and own is not None and data.records:
                self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    """All sessions, the one that was used last at the end. Owned by the broker's loop."""

    def __init__(
        self,
        draw: Callable[[], int],
        *,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._draw = draw
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[int, FetchSession] = {}
        # Nobody with this number of partitions, or fewer, finds a smaller session before then.
        self._smallest, self._search_ms = 0, 0
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, *, owner: str, has_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A session for a full request; None if there is no room, which is no error."""
        if _has_long_names(request):
            return None
        session = FetchSession(
            self._unused_id(), owner, has_topic_ids, opened_ms=now_ms, used_ms=now_ms
        )
        session.update(request.topics, ())
        count = len(session.partitions)
        if not 0 < count <= SESSION_PARTITIONS_MAX or not self._make_room(count, now_ms):
            return None
        self._sessions[session.session_id] = session
        self.partition_count += count
        return session

    def close(self, session_id: int, *, owner: str) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self._remove(session)

    def resume(
        self, request: FetchRequest, *, owner: str, has_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """The session that an incremental request goes on with; None if it has become empty."""
        session = self._find(request, owner, has_topic_ids)
        if _has_long_names(request):
            self._remove(session)
            raise FetchSessionNotFound(session_id=session.session_id)
        before = len(session.partitions)
        session.update(request.topics, request.forgotten_topics_data)
        self.partition_count += len(session.partitions) - before
        if not session.partitions:
            self._remove(session)
            return None
        is_too_large = len(session.partitions) > SESSION_PARTITIONS_MAX
        if is_too_large or self.partition_count > self._partitions_max:
            self._remove(session)
            raise FetchSessionNotFound(session_id=session.session_id)
        session.advance()
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def take_back(self, answer: FetchResponse) -> int:
        """Its client gets an empty answer instead; the session to name in that.

        One that was just opened ends: Kafka's clients open another one then.
        """
        session = self._sessions.get(answer.session_id)
        if session is None:
            return NO_SESSION
        if session.epoch == FIRST_EPOCH:
            self._remove(session)
            return NO_SESSION
        session.take_back(answer.responses)
        return session.session_id

    def _find(self, request: FetchRequest, owner: str, has_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None or session.owner != owner:
            raise FetchSessionNotFound(session_id=request.session_id)
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                session_id=session.session_id, epoch=request.session_epoch, expected=session.epoch
            )
        if has_topic_ids != session.has_topic_ids:
            raise FetchSessionTopicIds(session_id=session.session_id)
        return session

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        """Let idle sessions go, the one that was idle longest first; else a smaller one."""
        while self.partition_count + partition_count > self._partitions_max:
            if not self._remove_idle(now_ms):
                return False
        if len(self._sessions) < self._sessions_max:
            return True
        return self._remove_idle(now_ms) or self._remove_smaller(partition_count, now_ms)

    def _remove_idle(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms <= IDLE_MS:
            return False
        self._remove(oldest)
        return True

    def _remove_smaller(self, partition_count: int, now_ms: int) -> bool:
        if partition_count <= self._smallest and now_ms < self._search_ms:
            return False
        old = (one for one in self._sessions.values() if now_ms - one.opened_ms > IDLE_MS)
        smallest = min(old, key=lambda one: len(one.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= partition_count:
            self._smallest, self._search_ms = partition_count, now_ms + SEARCH_EVERY_MS
            return False
        self._remove(smallest)
        return True

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self.partition_count -= len(session.partitions)

    def _unused_id(self) -> int:
        while (drawn := self._draw()) in self._sessions or drawn == NO_SESSION:
            pass
        return drawn


def _has_long_names(request: FetchRequest) -> bool:
    return any(len(topic.topic) > TOPIC_NAME_LENGTH_MAX for topic in request.topics)
