"""Share sessions: which partitions a member fetches from, so that requests name changes only.

ShareFetch opens one with epoch 0; each further ShareFetch or ShareAcknowledge says the next epoch,
and -1 closes it. A member may go on with it from another connection (as in Kafka): it is bound to
the one that has fetched last, and ends with that. It holds no records: when one has been closed,
the shell gives back what the member holds in the partitions that are named.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.base.errors import Rejected, Retryable
from millstream.broker.groups.topic_catalog import TopicIdPartition

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSIONS_MAX = 2_000  # group.share.max.share.sessions


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSessionNotFound(Rejected):
    def __init__(self, *, key: SessionKey) -> None:
        super().__init__(
            f"share group {key.group_id!r}: member {key.member_id} has no share session here; "
            "open one with epoch 0"
        )
        self.key = key


class InvalidShareSessionEpoch(Rejected):
    def __init__(self, *, key: SessionKey, epoch: int, expected: int) -> None:
        super().__init__(
            f"share group {key.group_id!r}: member {key.member_id} said share session epoch "
            f"{epoch}, expected was {expected}; open a new session with epoch 0"
        )
        self.key, self.epoch, self.expected = key, epoch, expected


class AcknowledgedTooEarly(Rejected):
    """A request that opens a session acknowledges records: there can be none."""

    def __init__(self, *, key: SessionKey) -> None:
        super().__init__(
            f"share group {key.group_id!r}: member {key.member_id} acknowledges records in the "
            "request that opens its share session"
        )
        self.key = key


class TooManyShareSessions(Retryable):
    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"all {limit} share sessions are in use (group.share.max.share.sessions); try again "
            "when one was closed"
        )
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a ShareFetch says of its session."""

    key: SessionKey
    epoch: int
    connection_id: int
    added: tuple[TopicIdPartition, ...] = ()
    forgotten: frozenset[TopicIdPartition] = frozenset()
    has_acknowledgements: bool = False


@dataclass(slots=True)
class ShareSession:
    """`epoch` is the one that the next request must say."""

    connection_id: int
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)  # in order of arrival
    epoch: int = OPENING_EPOCH

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        self.partitions.update(dict.fromkeys(added))
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotated(self) -> tuple[TopicIdPartition, ...]:
        """Each request begins with another partition, so that none waits for ever."""
        partitions = [*self.partitions]
        turn = self.epoch % len(partitions) if partitions else 0
        return (*partitions[turn:], *partitions[:turn])


class ShareSessions:
    """At most one for each member of a group. Owned by the broker's loop; nothing is stored."""

    def __init__(self, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return len(self._sessions)

    def is_open(self, key: SessionKey, connection_id: int) -> bool:
        """Whether the member's session is still that of this connection."""
        session = self._sessions.get(key)
        return session is not None and session.connection_id == connection_id

    def fetch(self, request: SessionRequest) -> tuple[TopicIdPartition, ...]:
        """Where to fetch from, in this order; nowhere if the request closes the session.

        Then the shell settles what the request acknowledges, and calls `close`.
        """
        if request.epoch == OPENING_EPOCH:
            return self._open(request)
        session = self._find(request.key, request.epoch)
        if request.epoch == CLOSING_EPOCH:
            return ()
        session.connection_id = request.connection_id
        session.update(request.added, request.forgotten)
        partitions = session.rotated()
        session.advance()
        return partitions

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """ShareAcknowledge: it goes on with a session, and cannot open one."""
        if epoch == OPENING_EPOCH:
            known = self._sessions.get(key)
            expected = known.epoch if known is not None else CLOSING_EPOCH
            raise InvalidShareSessionEpoch(key=key, epoch=epoch, expected=expected)
        session = self._find(key, epoch)
        if epoch != CLOSING_EPOCH:
            session.advance()

    def close(self, key: SessionKey) -> tuple[TopicIdPartition, ...]:
        """The member said so, or hung up: its partitions, to give back what it holds."""
        session = self._sessions.pop(key, None)
        return tuple(session.partitions) if session is not None else ()

    def disconnect(
        self, connection_id: int
    ) -> tuple[tuple[SessionKey, tuple[TopicIdPartition, ...]], ...]:
        """The connection is gone, and with it its sessions; the same as closing each of them."""
        gone = [
            key for key, session in self._sessions.items() if session.connection_id == connection_id
        ]
        return tuple((key, self.close(key)) for key in gone)

    def _open(self, request: SessionRequest) -> tuple[TopicIdPartition, ...]:
        """A member that opens a session anew has forgotten the one before; its locks run out."""
        if request.has_acknowledgements:
            raise AcknowledgedTooEarly(key=request.key)
        self._sessions.pop(request.key, None)
        if len(self._sessions) >= self._sessions_max:
            raise TooManyShareSessions(limit=self._sessions_max)
        session = ShareSession(request.connection_id)
        session.update(request.added, ())
        partitions = session.rotated()
        session.advance()
        self._sessions[request.key] = session
        return partitions

    def _find(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(key=key)
        if epoch not in (session.epoch, CLOSING_EPOCH):
            raise InvalidShareSessionEpoch(key=key, epoch=epoch, expected=session.epoch)
        return session
