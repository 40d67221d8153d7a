# ShareAcknowledge, versions 1-2.
#   Does:     accept, release, reject, gap and (2+) renew, each partition as a whole or not at all;
#             answers when what was said is durable; the last epoch gives back what is still held.
#   Does not: ask whether the member is in the group: it has a share session (as Kafka).

from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.base.errors import MillstreamError, Rejected
from millstream.broker.groups.group_state import GroupKind
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.share.acknowledgement import Acknowledgement, acknowledgement_of
from millstream.broker.share.share_group import NoShareGroup
from millstream.broker.share.share_sessions import CLOSING_EPOCH, SessionKey
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

MEMBER_ID_LENGTH_MAX = 36  # a UUID, as Kafka's clients make them


class InvalidShareRequest(Rejected):
    def __init__(self, reason: str) -> None:
        super().__init__(f"a request of a share group: {reason}")
        self.reason = reason


@handles(ApiKey.SHARE_ACKNOWLEDGE, versions=range(1, 3))
def share_acknowledge(
    request: ShareAcknowledgeRequest, call: Call
) -> ShareAcknowledgeResponse | Coroutine[Any, Any, ShareAcknowledgeResponse]:
    try:
        member = member_of(request, call)
        call.node.share_partitions.sessions.acknowledge(member, request.share_session_epoch)
    except MillstreamError as error:
        return ShareAcknowledgeResponse(
            error_code=error_code(error), error_message=error_message(error)
        )
    return _acknowledge(request, call, member)


async def _acknowledge(
    request: ShareAcknowledgeRequest, call: Call, member: SessionKey
) -> ShareAcknowledgeResponse:
    groups = call.groups(member.group_id)
    settlements = settle(call, member, request.topics, is_renewal=request.is_renew_ack)
    if request.share_session_epoch == CLOSING_EPOCH:
        call.node.share_partitions.close_session(member)
    by_topic: dict[bytes, list[PartitionData]] = {}
    for settlement in settlements:
        answer = await _answer_of(settlement)
        by_topic.setdefault(settlement.place.topic_id, []).append(answer)
    terms = groups.configs.share_terms_of(member.group_id)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=terms.lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
    )


async def _answer_of(settlement: "Settlement") -> PartitionData:
    answer = PartitionData(partition_index=settlement.place.partition)
    error = await settlement.error()
    if error is not None:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer


# --- the same in ShareFetch ---------------------------------------------------------------------


class ShareRequest(Protocol):
    group_id: str | None
    member_id: str | None


class WireBatch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class WirePartition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Iterable[WireBatch]: ...


class WireTopic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Iterable[WirePartition]: ...


def member_of(request: ShareRequest, call: Call) -> SessionKey:
    """Who asks; raises unless that can be a member of a share group."""
    group_id, member_id = request.group_id, request.member_id
    if not group_id:
        raise InvalidShareRequest("it names no group")
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidShareRequest(f"it names no member, or one of over {MEMBER_ID_LENGTH_MAX}")
    kind = call.groups(group_id).kind_of(group_id)
    if kind not in (None, GroupKind.SHARE):
        raise NoShareGroup(group_id=group_id, kind=kind)
    return SessionKey(group_id, member_id)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was said of one partition's records: settled, and done when it is durable; or wrong."""

    place: TopicIdPartition
    done: Awaitable[None] | MillstreamError

    async def error(self) -> MillstreamError | None:
        if isinstance(self.done, MillstreamError):
            return self.done
        try:
            await self.done
        except MillstreamError as error:
            return error
        return None


def settle(
    call: Call, member: SessionKey, topics: Iterable[WireTopic], *, is_renewal: bool
) -> list[Settlement]:
    """All that a request says, partition by partition; what is wrong in one is its own matter."""
    settlements = []
    for topic in topics:
        for named in topic.partitions:
            batches = [*named.acknowledgement_batches]
            if batches:
                place = TopicIdPartition(topic.topic_id, named.partition_index)
                done = _settle_partition(call, member, place, batches, is_renewal=is_renewal)
                settlements.append(Settlement(place, done))
    return settlements


def _settle_partition(
    call: Call,
    member: SessionKey,
    place: TopicIdPartition,
    batches: Iterable[WireBatch],
    *,
    is_renewal: bool,
) -> Awaitable[None] | MillstreamError:
    try:
        partition = call.topics.with_id(place.topic_id).partition(place.partition)
        return call.node.share_partitions.acknowledge(
            member, place, partition, [_read(batch) for batch in batches], is_renewal=is_renewal
        )
    except MillstreamError as error:
        return error


def _read(batch: WireBatch) -> Acknowledgement:
    return acknowledgement_of(batch.first_offset, batch.last_offset, batch.acknowledge_types)
