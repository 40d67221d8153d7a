"""The answers that a group owes: those that a member waits for, and those given by this call."""

from millstream.broker.groups.group_messages import (
    NO_MEMBER_ID,
    JoinReply,
    Reply,
    ReplyTo,
    SyncReply,
)
from millstream.broker.groups.member import Member
from millstream.broker.wire.error_codes import ErrorCode


class Answers:
    """Collects the replies of one call. No token is answered twice, and none is forgotten.

    A member waits for one answer at a time: if it asks again, it has lost the connection of its
    first question, whose answer is REBALANCE_IN_PROGRESS, the harmless one.
    """

    def __init__(self) -> None:
        self._replies: list[tuple[ReplyTo, Reply]] = []

    def give(self, reply_to: ReplyTo, reply: Reply) -> None:
        self._replies.append((reply_to, reply))

    def take(self) -> tuple[tuple[ReplyTo, Reply], ...]:
        replies, self._replies = tuple(self._replies), []
        return replies

    def owe_join(self, member: Member, reply_to: ReplyTo) -> None:
        self.dismiss(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join_reply_to = reply_to

    def owe_sync(self, member: Member, reply_to: ReplyTo) -> None:
        self.dismiss(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_reply_to = reply_to

    def give_join(self, member: Member, reply: JoinReply) -> None:
        if member.join_reply_to is not None:
            self.give(member.join_reply_to, reply)
            member.join_reply_to = None

    def give_sync(self, member: Member, reply: SyncReply, *, now_ms: int) -> None:
        """Its session starts again: while it waited it could not heartbeat."""
        if member.sync_reply_to is not None:
            self.give(member.sync_reply_to, reply)
            member.sync_reply_to = None
            member.renew_session(now_ms)

    def dismiss(self, member: Member, error: ErrorCode) -> None:
        """Answer whatever the member waits for with `error`."""
        is_unknown = error is ErrorCode.UNKNOWN_MEMBER_ID
        member_id = NO_MEMBER_ID if is_unknown else member.member_id
        self.give_join(member, JoinReply(error=error, member_id=member_id))
        if member.sync_reply_to is not None:
            self.give(member.sync_reply_to, SyncReply(error=error))
            member.sync_reply_to = None
