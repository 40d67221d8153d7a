"""One member of a classic group: who it is, what it can do, and which answer it waits for."""

from dataclasses import dataclass

from millstream.broker.groups.group_messages import (
    GroupProtocol,
    JoinedMember,
    JoinRequest,
    ReplyTo,
)
from millstream.broker.groups.group_metadata import MemberMetadata


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """Owned by one `Roster`. It waits for at most one answer: to a join or to a sync."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    expires_ms: int
    assignment: bytes = b""
    is_new: bool = False  # has joined, and no generation has started since
    must_sync: bool = False  # was told of this generation, and has not asked for its part
    join_reply_to: ReplyTo | None = None
    sync_reply_to: ReplyTo | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_joining(self) -> bool:
        return self.join_reply_to is not None

    @property
    def can_expire(self) -> bool:
        """A member that waits cannot heartbeat: it is alive as long as it waits.

        Not so a new one. Its client may have gone, and come back with another id each time.
        """
        return self.is_new or (self.join_reply_to is None and self.sync_reply_to is None)

    def renew_session(self, now_ms: int) -> None:
        if not self.is_new:
            self.expires_ms = now_ms + self.session_timeout_ms

    def start_generation(self, now_ms: int) -> None:
        self.is_new = False
        self.must_sync = True
        self.assignment = b""
        self.renew_session(now_ms)

    def update(self, request: JoinRequest) -> None:
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.join_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that every member knows."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def subscription(self, protocol_name: str | None) -> bytes:
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.subscription(protocol_name))

    def metadata(self, protocol_name: str | None) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.subscription(protocol_name),
            assignment=self.assignment,
        )

    @classmethod
    def from_join(cls, request: JoinRequest, *, member_id: str, expires_ms: int) -> "Member":
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.join_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            expires_ms=expires_ms,
            is_new=True,
        )

    @classmethod
    def from_metadata(
        cls, metadata: MemberMetadata, *, protocol_name: str | None, now_ms: int
    ) -> "Member":
        return cls(
            member_id=metadata.member_id,
            instance_id=metadata.instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            rebalance_timeout_ms=metadata.rebalance_timeout_ms,
            session_timeout_ms=metadata.session_timeout_ms,
            protocols=(GroupProtocol(protocol_name or "", metadata.subscription),),
            assignment=metadata.assignment,
            expires_ms=now_ms + metadata.session_timeout_ms,
        )
