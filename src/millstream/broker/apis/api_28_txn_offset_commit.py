# TxnOffsetCommit, versions 0-5.
#   Does:     stores offsets that count once the producer's transaction is committed. From version
#             5 on that lets the group's offsets take part in the transaction too (KIP-890).

from millstream.base.errors import MillstreamError
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.offset_rules import check_commit, check_partition_commit
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import coordinator_error_code, error_code
from millstream.broker.transaction_coordinator import OFFSETS_PLACE
from millstream.broker.transactions.transaction import (
    Identity,
    NotInThisTransaction,
    ProducerFenced,
)
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ADDS_IMPLICITLY = 5
KNOWS_ABORTABLE = 4

Codes = dict[TopicPartition, ErrorCode]
Commits = list[tuple[TopicPartition, CommittedOffset]]


@handles(
    ApiKey.TXN_OFFSET_COMMIT,
    versions=range(6),
    refuse=lambda request, code: _answer(request, {}, code),
)
async def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    try:
        if call.version >= ADDS_IMPLICITLY:
            await call.transactions(request.transactional_id).add(
                request.transactional_id,
                _identity(request),
                frozenset({OFFSETS_PLACE}),
                has_epoch_per_transaction=True,
            )
        # From here to the append nothing is waited for: who may commit now, commits now.
        error = _check_member(request, call)
        if error is not ErrorCode.NONE:
            return _answer(request, {}, error)
        return _answer(request, await _commit(request, call), ErrorCode.NONE)
    except MillstreamError as failure:
        return _answer(request, {}, _code(failure, call))


def _check_member(request: TxnOffsetCommitRequest, call: Call) -> ErrorCode:
    groups = call.groups(request.group_id)
    group = groups.find(request.group_id)
    if request.group_id in groups.shares:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group is None:
        is_member = request.generation_id >= 0
        return ErrorCode.ILLEGAL_GENERATION if is_member else ErrorCode.NONE
    return check_commit(
        group.members,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        is_transactional=True,
    )


async def _commit(request: TxnOffsetCommitRequest, call: Call) -> Codes:
    groups, who = call.groups(request.group_id), _identity(request)
    codes, commits = _check_all(request, call)
    call.transactions(request.transactional_id).check_write(
        request.transactional_id, who, OFFSETS_PLACE
    )
    if commits:
        group = groups.find_or_create(request.group_id)
        await groups.commit_in_transaction(group, commits, who)
    return codes


def _check_all(request: TxnOffsetCommitRequest, call: Call) -> tuple[Codes, Commits]:
    """The error of each partition, and what to store for those without one."""
    codes: Codes = {}
    commits: Commits = []
    for topic in request.topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            committed = _committed(partition, call)
            codes[where] = _check_place(where, call) or _check(where, committed, request, call)
            if codes[where] is ErrorCode.NONE:
                commits.append((where, committed))
    return codes, commits


def _check(
    where: TopicPartition, committed: CommittedOffset, request: TxnOffsetCommitRequest, call: Call
) -> ErrorCode:
    group = call.groups(request.group_id).find_or_create(request.group_id)
    return group.offsets.check(committed) or check_partition_commit(
        group.members, where, member_id=request.member_id, generation=request.generation_id
    )


def _check_place(where: TopicPartition, call: Call) -> ErrorCode:
    try:
        call.topics.named(where.topic).partition(where.partition)
    except MillstreamError as error:
        return error_code(error)
    return ErrorCode.NONE


def _committed(partition: TxnOffsetCommitRequestPartition, call: Call) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        committed_ms=call.node.now_ms(),
    )


def _identity(request: TxnOffsetCommitRequest) -> Identity:
    return Identity(request.producer_id, request.producer_epoch)


def _code(error: MillstreamError, call: Call) -> ErrorCode:
    match error:
        case ProducerFenced():
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case NotInThisTransaction() if call.version >= KNOWS_ABORTABLE:
            return ErrorCode.TRANSACTION_ABORTABLE
    return coordinator_error_code(error)


def _answer(
    request: TxnOffsetCommitRequest, codes: Codes, default: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            TopicPartition(topic.name, partition.partition_index), default
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
