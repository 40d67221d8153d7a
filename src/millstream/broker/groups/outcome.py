"""What a call to a group leads to, and the order in which it may be seen.

A group changes at once, the disk follows later. So that no member acts on a state that a crash
could take back, the replies of an outcome wait for its metadata, and the replies of every later
outcome wait for them. `Outbox` is that rule; the shell does the waiting.
"""

from collections import deque
from dataclasses import dataclass, replace

from millstream.broker.groups.consumer_messages import ConsumerHeartbeatReply
from millstream.broker.groups.group_messages import (
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    Reply,
    ReplyTo,
    SyncReply,
)
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.stored_facts import Fact, FactKey
from millstream.broker.streams.streams_facts import StreamsFact, StreamsFactKey
from millstream.broker.streams.streams_messages import StreamsHeartbeatReply
from millstream.broker.wire.error_codes import ErrorCode

AnyReply = Reply | ConsumerHeartbeatReply | StreamsHeartbeatReply
Replies = tuple[tuple[ReplyTo, AnyReply], ...]
AnyFactKey = FactKey | StreamsFactKey
AnyFact = Fact | StreamsFact
AnyFacts = tuple[tuple[AnyFactKey, AnyFact | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """First append and sync `metadata` and `facts`, if any; then deliver `replies`.

    They are the group as it was when the call ended: later calls do not change them. A classic
    group has all of it in `metadata`, a consumer group (KIP-848) and a streams group (KIP-1071)
    have `facts`.
    """

    replies: Replies = ()
    metadata: GroupMetadata | None = None
    facts: AnyFacts = ()

    @property
    def must_persist(self) -> bool:
        return self.metadata is not None or bool(self.facts)

    def refused(self, error: ErrorCode) -> "Outcome":
        """The same outcome after its metadata could not be stored: no reply claims success."""
        return Outcome(replies=tuple((to, _refuse(reply, error)) for to, reply in self.replies))


class Outbox:
    """The outcomes of one group, delivered in the order in which the group made them.

    The shell pushes every outcome, in the same step appends the metadata of those that have one
    (so the log has them in this order too), and reports each sync, oldest first. Each call
    returns the replies that may go out now.
    """

    def __init__(self) -> None:
        self._held: deque[Outcome] = deque()  # the first one, if any, is waiting for its sync

    def push(self, outcome: Outcome) -> Replies:
        if outcome.must_persist or self._held:
            self._held.append(outcome)
            return ()
        return outcome.replies

    def persisted(self) -> Replies:
        """The oldest metadata that was pushed is on disk."""
        replies = self._held.popleft().replies
        while self._held and not self._held[0].must_persist:
            replies += self._held.popleft().replies
        return replies

    def failed(self, error: ErrorCode) -> Replies:
        """It is not, and never will be: what was held behind it rests on it, and fails with it.

        In the same step call `ClassicGroup.persist_failed`, and push its outcome.
        """
        return Outcome(replies=self.persisted()).refused(error).replies


def _refuse(reply: AnyReply, error: ErrorCode) -> AnyReply:
    if reply.error is not ErrorCode.NONE:
        return reply
    match reply:
        case JoinReply():
            return JoinReply(error=error)
        case SyncReply():
            return SyncReply(error=error)
        case ConsumerHeartbeatReply():
            return ConsumerHeartbeatReply(error=error)
        case StreamsHeartbeatReply():
            return StreamsHeartbeatReply(error=error)
        case HeartbeatReply() | LeaveReply():
            return replace(reply, error=error)
