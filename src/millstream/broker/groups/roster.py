"""The members of one classic group: who is in, who leads, which protocol all of them know.

Keeps the book and answers questions. When somebody may come or must go, and what that means for
the generation, is decided in `classic_group.py`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from millstream.broker.groups.group_messages import GroupProtocol, JoinedMember
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.member import Member
from millstream.broker.wire.error_codes import ErrorCode


class Roster:
    """Members in the order in which they came; no two of them share an instance id.

    `leader` is one of them, or None if there are none. `pending` are ids that were given out and
    have not come back yet (KIP-394), with the time until which they are kept.
    """

    def __init__(self, members: Iterable[Member] = (), *, leader: str | None = None) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}  # instance id -> member id
        self.pending: dict[str, int] = {}
        self.leader: str | None = None
        for member in members:
            self.add(member)
        if leader in self._members:
            self.leader = leader

    @classmethod
    def from_metadata(cls, metadata: GroupMetadata, *, now_ms: int) -> "Roster":
        name = metadata.protocol_name
        members = [
            Member.from_metadata(member, protocol_name=name, now_ms=now_ms)
            for member in metadata.members
        ]
        return cls(members, leader=metadata.leader)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """A copy: members may be removed on the way."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def find_static(self, instance_id: str | None) -> Member | None:
        member_id = self._static_ids.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this one of us, and is its instance id (if any) its own and not a successor's?"""
        if instance_id is not None:
            holder = self.find_static(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """The static member starts again under another id; a leader stays the leader."""
        was_leader = self.leader == member.member_id
        self.remove(member)
        member.member_id = member_id
        self.add(member)
        if was_leader:
            self.leader = member_id

    def drop_pending(self, due_ms: int) -> None:
        self.pending = {id_: ms for id_, ms in self.pending.items() if ms > due_ms}

    def elect_leader(self) -> bool:
        """The leader stays if it has rejoined, else the first that has; False if nobody has."""
        joining = [member.member_id for member in self if member.is_joining]
        if joining and self.leader not in joining:
            self.leader = joining[0]
        return bool(joining)

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and all(member.is_joining for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        return tuple(member.joined(protocol_name) for member in self)

    def has_common(self, protocols: Iterable[GroupProtocol]) -> bool:
        """Does everybody know one of `protocols`? (Members as they are, before any update.)"""
        return any(
            all(any(known.name == offer.name for known in member.protocols) for member in self)
            for offer in protocols
        )

    def elect_protocol(self) -> str:
        """Each member votes for its first choice among those all know; the first wins a tie."""
        known = Counter(name for member in self for name in {p.name for p in member.protocols})
        candidates = {name for name, count in known.items() if count == len(self)}
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=lambda name: votes[name])
