"""From a classic group to a consumer group and back, while members are in it (KIP-848).

Members keep their ids, epochs and partitions; those of the classic protocol are asked to join
again, and are served in either kind of group. What a member might still be reading counts as its
own, so that a conversion hands out no partition twice. The caller has made the new group, empty,
and puts it in the place of the old one.
"""

from collections.abc import Iterable
from dataclasses import replace

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_admission import refuse
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_member import (
    ClassicProtocols,
    ConsumerMember,
    MemberProfile,
    MemberProgress,
)
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat
from millstream.broker.groups.consumer_subscription import CONSUMER_PROTOCOL_TYPE
from millstream.broker.groups.embedded_protocol import (
    partitions_of,
    read_assignment,
    read_subscription,
    write_assignment,
)
from millstream.broker.groups.group_messages import ReplyTo
from millstream.broker.groups.group_metadata import GroupMetadata, MemberMetadata
from millstream.broker.groups.member import Member
from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.stored_facts import FactKey, FactKind
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.streams.streams_messages import StreamsHeartbeat
from millstream.broker.wire.error_codes import ErrorCode

AnyGroup = ClassicGroup | ConsumerGroup | StreamsGroup

# What a client's own assignor tells its members besides would be lost. These do without: librdkafka
# has `cooperative-sticky` repeat there what members said, and so is refused by Kafka.
KNOWN_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


def to_consumer_group(
    old: ClassicGroup,
    new: ConsumerGroup,
    join: ConsumerHeartbeat,
    *,
    reply_to: ReplyTo,
    now_ms: int,
) -> Outcome:
    """The first member of the new protocol joins. If it is refused, nothing is to be stored, and
    the old group goes on."""
    members = _consumer_members(old, new.book.catalog)
    if members is None:
        message = f"the members of group {old.group_id} are not all consumers that can be read"
        return Outcome(replies=((reply_to, refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)),))
    if members:
        new.book.epoch = new.book.target_epoch = old.generation
        new.book.note_everything()
    for member in _with_one_owner_each(members):
        new.book.adopt(member)
    new.start_deadlines(now_ms)
    joined = new.consumer_heartbeat(join, reply_to=reply_to, now_ms=now_ms)
    if joined.replies[0][1].error is not ErrorCode.NONE:
        return Outcome(replies=joined.replies)
    facts = ((FactKey(FactKind.CLASSIC_GROUP), None), *joined.facts)
    return Outcome(replies=(*old.dissolve(), *joined.replies), facts=facts)


def to_streams_group(
    old: ClassicGroup,
    new: StreamsGroup,
    join: StreamsHeartbeat,
    *,
    reply_to: ReplyTo,
    now_ms: int,
) -> Outcome:
    """The first member of an application joins; `old` has no members. Its offsets stay."""
    joined = new.streams_heartbeat(join, reply_to=reply_to, now_ms=now_ms)
    if joined.replies[0][1].error is not ErrorCode.NONE:
        return Outcome(replies=joined.replies)
    facts = ((FactKey(FactKind.CLASSIC_GROUP), None), *joined.facts)
    return Outcome(replies=(*old.dissolve(), *joined.replies), facts=facts)


def vacated(old: ConsumerGroup | StreamsGroup) -> Outcome:
    """Without members it is the name of a classic group, too."""
    return Outcome(facts=tuple((key, None) for key in old.book.fact_keys()))


def to_classic_group(old: ConsumerGroup, new: ClassicGroup, *, now_ms: int) -> Outcome:
    """All members of `old` speak the classic protocol, and there is one at least."""
    protocols = {member.member_id: _protocols(member).protocols for member in old.book}
    outcome = new.adopt(_metadata(old, now_ms), protocols, now_ms=now_ms)
    return replace(outcome, facts=vacated(old).facts)


def _consumer_members(group: ClassicGroup, catalog: TopicCatalog) -> list[ConsumerMember] | None:
    """None: they are no consumers, or write what only their own assignor can read."""
    if len(group.roster) > 0 and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    members = [_consumer_member(member, group, catalog) for member in group.roster]
    readable = [member for member in members if member is not None]
    return readable if len(readable) == len(members) else None


def _consumer_member(
    member: Member, group: ClassicGroup, catalog: TopicCatalog
) -> ConsumerMember | None:
    names = {protocol.name for protocol in member.protocols}
    name = group.protocol_name if group.protocol_name in names else member.protocols[0].name
    subscription = read_subscription(member.subscription(name))
    assignment = read_assignment(member.assignment)
    if subscription is None or assignment is None:
        return None
    if assignment.user_data and name not in KNOWN_ASSIGNORS:
        return None
    # Between two generations it keeps what it said it owned, until it hears otherwise.
    owned = partitions_of(assignment if member.assignment else subscription, catalog)
    return ConsumerMember(
        member_id=member.member_id,
        profile=MemberProfile(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            classic=ClassicProtocols(
                session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
            ),
        ),
        progress=MemberProgress(
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=dict.fromkeys(sorted(owned), group.generation),
        ),
    )


def _with_one_owner_each(members: Iterable[ConsumerMember]) -> Iterable[ConsumerMember]:
    """A client's own assignor may have given a partition twice, and a zombie may claim one."""
    taken: set[TopicIdPartition] = set()
    for member in members:
        own = {p: epoch for p, epoch in member.progress.assigned.items() if p not in taken}
        taken |= own.keys()
        yield replace(member, progress=replace(member.progress, assigned=own))


def _metadata(group: ConsumerGroup, now_ms: int) -> GroupMetadata:
    members = list(group.book)
    offers = [[protocol.name for protocol in _protocols(member).protocols] for member in members]
    shared = [name for name in offers[0] if all(name in others for others in offers)]
    name = shared[0] if shared else offers[0][0]
    return GroupMetadata(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.book.epoch,
        protocol_name=name,
        leader=members[0].member_id,
        state_timestamp_ms=now_ms,
        members=tuple(_member_metadata(member, name, group.book.catalog) for member in members),
    )


def _member_metadata(
    member: ConsumerMember, protocol_name: str, catalog: TopicCatalog
) -> MemberMetadata:
    profile, progress, classic = member.profile, member.progress, _protocols(member)
    offers = {protocol.name: protocol.metadata for protocol in classic.protocols}
    subscription = offers.get(protocol_name, classic.protocols[0].metadata)
    owned = [*progress.assigned, *progress.revoking]
    return MemberMetadata(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        subscription=subscription,
        assignment=write_assignment(owned, catalog, subscription=subscription),
    )


def _protocols(member: ConsumerMember) -> ClassicProtocols:
    assert member.profile.classic is not None
    return member.profile.classic
