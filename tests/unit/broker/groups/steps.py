"""Steps of a classic group's story: members act, time passes, answers arrive.

`GroupDriver` is a shell without a disk: it hands out tokens, keeps the answers, remembers what
was stored last, and ticks whenever the group asks for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_messages import ConsumerHeartbeatReply
from millstream.broker.groups.group_messages import (
    GroupProtocol,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    Reply,
    SyncReply,
    SyncRequest,
)
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.group_state import GroupLimits
from millstream.broker.groups.outcome import Outcome
from millstream.broker.streams.streams_messages import StreamsHeartbeatReply
from millstream.broker.wire.error_codes import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 100
RANGE = (GroupProtocol("range", b"topics"),)

R = TypeVar("R", JoinReply, SyncReply, HeartbeatReply, LeaveReply)


@dataclass(frozen=True, slots=True)
class Asked(Generic[R]):
    """A request under way, and its answer when there is one."""

    token: int
    kind: type[R]
    inbox: dict[int, Reply]

    @property
    def is_waiting(self) -> bool:
        return self.token not in self.inbox

    @property
    def reply(self) -> R:
        reply = self.inbox[self.token]
        assert isinstance(reply, self.kind)
        return reply

    @property
    def error(self) -> ErrorCode:
        return self.reply.error


class GroupDriver:
    def __init__(
        self,
        *,
        group_size_max: int = 100,
        initial_rebalance_delay_ms: int = INITIAL_DELAY_MS,
    ) -> None:
        self.now_ms = 1_000
        self.inbox: dict[int, Reply] = {}
        self.stored: GroupMetadata | None = None
        self.last = Outcome()
        self.limits = GroupLimits(
            group_size_max=group_size_max, initial_rebalance_delay_ms=initial_rebalance_delay_ms
        )
        self._tokens = count(1)
        self._suffixes = count(1)
        self.group = self._new_group()

    def _new_group(self) -> ClassicGroup:
        return ClassicGroup(
            "readers",
            limits=self.limits,
            new_suffix=lambda: f"{next(self._suffixes)}",
            now_ms=self.now_ms,
        )

    def take(self, outcome: Outcome) -> Outcome:
        for token, reply in outcome.replies:
            assert isinstance(token, int)
            assert token not in self.inbox, "answered twice"
            others = ConsumerHeartbeatReply | StreamsHeartbeatReply
            assert not isinstance(reply, others), "a classic group does not say so"
            self.inbox[token] = reply
        if outcome.metadata is not None:
            self.stored = outcome.metadata
        self.last = outcome
        return outcome

    def ask_to_join(
        self,
        client_id: str = "ada",
        *,
        member_id: str = "",
        instance_id: str | None = None,
        protocols: tuple[GroupProtocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        requires_known_member_id: bool = False,
        supports_skip_assignment: bool = True,
    ) -> Asked[JoinReply]:
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_known_member_id=requires_known_member_id,
            supports_skip_assignment=supports_skip_assignment,
        )
        asked = Asked(next(self._tokens), JoinReply, self.inbox)
        self.take(self.group.join(request, reply_to=asked.token, now_ms=self.now_ms))
        return asked

    def ask_to_sync(
        self,
        member_id: str,
        *,
        assignments: dict[str, bytes] | None = None,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Asked[SyncReply]:
        request = SyncRequest(
            member_id=member_id,
            instance_id=instance_id,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple((assignments or {}).items()),
        )
        asked = Asked(next(self._tokens), SyncReply, self.inbox)
        self.take(self.group.sync(request, reply_to=asked.token, now_ms=self.now_ms))
        return asked

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            member_id=member_id,
            instance_id=instance_id,
            generation=self.group.generation if generation is None else generation,
        )
        asked = Asked(next(self._tokens), HeartbeatReply, self.inbox)
        self.take(self.group.heartbeat(request, reply_to=asked.token, now_ms=self.now_ms))
        return asked.error

    def leave(self, *leaving: LeavingMember | str) -> LeaveReply:
        members = [LeavingMember(who) if isinstance(who, str) else who for who in leaving]
        asked = Asked(next(self._tokens), LeaveReply, self.inbox)
        self.take(self.group.leave(members, reply_to=asked.token, now_ms=self.now_ms))
        return asked.reply

    def wait(self, duration_ms: int, *, alive: Iterable[str] = ()) -> None:
        """Let time pass, ticking on time; members in `alive` heartbeat every second."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            due_ms = self.group.deadline_ms
            next_ms = min(self.now_ms + 1_000, end_ms)
            self.now_ms = next_ms if due_ms is None else max(self.now_ms, min(due_ms, next_ms))
            for member_id in alive:
                self.heartbeat(member_id)
            self.take(self.group.tick(self.now_ms))

    def restart(self) -> None:
        """The broker stops and starts again: only what was stored is left."""
        self.group = self._new_group()
        if self.stored is not None:
            self.group.restore(self.stored, now_ms=self.now_ms)

    def start_generation(self, *instances: str | None) -> list[str]:
        """The group is empty; these join together, and wait for their leader. Returns their ids."""
        asked = [
            self.ask_to_join("ada" if i is None else i, instance_id=i) for i in instances or (None,)
        ]
        while asked[0].is_waiting:  # those after the first one extend the delay
            self.wait(INITIAL_DELAY_MS)
        return [one.reply.member_id for one in asked]

    def stabilize(self, *instances: str | None) -> list[str]:
        """As `start_generation`, and all sync. The first one is the leader."""
        member_ids = self.start_generation(*instances)
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        for member_id in member_ids:
            self.ask_to_sync(member_id, assignments=assignments)
        return member_ids
