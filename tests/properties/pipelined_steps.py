"""Requests of a client that sends without waiting: one maker for each API, random and the tail.

Each request is made when it is its turn, of a `Script` that never looks at an answer. TURNS_BY_API
is the mix of test_pipelined_requests.py: an API whose handler may answer later is in it, or is
named in NOT_IN_THE_MIX with the reason.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from millstream.base.record import Record
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ApiKey, Message
from millstream.broker.wire.messages import alter_client_quotas as quotas
from millstream.broker.wire.messages import alter_configs, create_acls, delete_acls, offset_delete
from millstream.broker.wire.messages import alter_share_group_offsets as alter_share
from millstream.broker.wire.messages import alter_user_scram_credentials as users
from millstream.broker.wire.messages import delete_share_group_offsets as delete_share
from millstream.broker.wire.messages import describe_share_group_offsets as describe_share
from millstream.broker.wire.messages import streams_group_heartbeat as streams
from millstream.broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millstream.broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.delete_topics import DeleteTopicsRequest
from millstream.broker.wire.messages.describe_acls import DescribeAclsRequest
from millstream.broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from millstream.broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from millstream.broker.wire.messages.end_txn import EndTxnRequest
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.heartbeat import HeartbeatRequest
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.broker.wire.messages.list_groups import ListGroupsRequest
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.broker.wire.messages.list_transactions import ListTransactionsRequest
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from millstream.broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.broker.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from millstream.broker.wire.messages.share_fetch import (
    FetchPartition as ShareFetchPartition,
)
from millstream.broker.wire.messages.share_fetch import (
    FetchTopic as ShareFetchTopic,
)
from millstream.broker.wire.messages.share_fetch import ShareFetchRequest
from millstream.broker.wire.messages.share_group_describe import ShareGroupDescribeRequest
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.broker.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from millstream.broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.log.record_batch import TRANSACTIONAL, encode_batch
from tests.support.batches import NOW_MS

FIXED_TOPICS = ("fixed0", "fixed1", "fixed2")  # always there: writes of transactions go there
OTHER_TOPICS = ("other0", "other1")
ALL_TOPICS = FIXED_TOPICS + OTHER_TOPICS
# Written with every acks. A write that nobody waits for may be read some time later, so that only
# the tail reads it; the offsets of writes with acks=1 and all show the order meanwhile.
UNWAITED = "unwaited"
GROUPS = ["readers", "balanced", "queue", "app"]
MEMBER = "7f0c1c2e-5d6b-4a3e-9f10-0123456789ab"
TOPICS = st.sampled_from(ALL_TOPICS)
FIXED = st.sampled_from(FIXED_TOPICS)
FEW_FIXED = st.lists(FIXED, min_size=1, max_size=3, unique=True)


@dataclass(slots=True)
class Script:
    """What a client would say next, if all goes as it hopes; it never looks at an answer."""

    who: Identity
    topic_ids: dict[str, bytes]
    sequences: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    is_open: bool = False
    member_epoch: int = 0
    share_epoch: int = 0
    share_session: int = 0
    streams_epoch: int = 0
    fetch_session: int = 0
    fetch_sessions: int = 0
    joined: int = 0

    def end(self) -> None:
        """The next transaction has an epoch of its own."""
        self.who = Identity(self.who.producer_id, self.who.epoch + 1)
        self.sequences.clear()
        self.is_open = False


Made = tuple[Message, int]
Step = Callable[[Script], Made]


# --- requests, made when it is their turn ---------------------------------------------------------


def write(topic: str, acks: int = -1) -> Step:
    record = [Record(value=b"plain", timestamp_ms=NOW_MS)]
    data = PartitionProduceData(index=0, records=encode_batch(record))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return lambda _: (ProduceRequest(acks=acks, topic_data=topics), 12)


def write_in_transaction(topics: list[str]) -> Step:
    def make(script: Script) -> Made:
        script.is_open = True
        data = [
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=0, records=_next_batch(script, topic))],
            )
            for topic in topics
        ]
        return ProduceRequest(transactional_id="tx", acks=-1, topic_data=data), 12

    return make


def _next_batch(script: Script, topic: str) -> bytes:
    sequence, script.sequences[topic] = script.sequences[topic], script.sequences[topic] + 1
    return bytes(
        encode_batch(
            [Record(value=b"%d" % sequence, timestamp_ms=NOW_MS)],
            producer_id=script.who.producer_id,
            producer_epoch=script.who.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
    )


def add_partitions(topics: list[str]) -> Step:
    def make(script: Script) -> Made:
        script.is_open = True
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=script.who.producer_id,
            v3_and_below_producer_epoch=script.who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=one, partitions=[0]) for one in topics
            ],
        )
        return request, 3

    return make


def add_offsets(script: Script) -> Made:
    script.is_open = True
    request = AddOffsetsToTxnRequest(
        transactional_id="tx",
        producer_id=script.who.producer_id,
        producer_epoch=script.who.epoch,
        group_id="readers",
    )
    return request, 3


def commit_in_transaction(offset: int) -> Step:
    def make(script: Script) -> Made:
        script.is_open = True
        place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="readers",
            producer_id=script.who.producer_id,
            producer_epoch=script.who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="fixed0", partitions=[place])],
        )
        return request, 5

    return make


def end_transaction(is_commit: bool) -> Step:
    def make(script: Script) -> Made:
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=script.who.producer_id,
            producer_epoch=script.who.epoch,
            committed=is_commit,
        )
        if script.is_open or not is_commit:
            script.end()
        return request, 5

    return make


def renew_producer(script: Script) -> Made:
    request = InitProducerIdRequest(
        transactional_id="tx",
        transaction_timeout_ms=60_000,
        producer_id=script.who.producer_id,
        producer_epoch=script.who.epoch,
    )
    script.end()
    return request, 4


def commit(offset: int) -> Step:
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="fixed0", partitions=[place])]
    return lambda _: (OffsetCommitRequest(group_id="readers", topics=topics), 8)


def delete_offsets(_: Script) -> Made:
    place = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topic = offset_delete.OffsetDeleteRequestTopic(name="fixed0", partitions=[place])
    return offset_delete.OffsetDeleteRequest(group_id="readers", topics=[topic]), 0


def create(topic: str) -> Step:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return lambda _: (CreateTopicsRequest(topics=[wanted]), 6)


def delete_topic(topic: str) -> Step:
    return ask(DeleteTopicsRequest(topic_names=[topic]), 5)


def grow(topic: str, count: int) -> Step:
    return ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=count)]), 3)


def delete_groups(_: Script) -> Made:
    return DeleteGroupsRequest(groups_names=GROUPS), 2


def configure(topic: str) -> Step:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="123456")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    return lambda _: (IncrementalAlterConfigsRequest(resources=[resource]), 1)


def configure_anew(topic: str) -> Step:
    """AlterConfigs: what is not named is as by default again."""
    config = alter_configs.AlterableConfig(name="retention.ms", value="654321")
    resource = alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[config]
    )
    return ask(alter_configs.AlterConfigsRequest(resources=[resource]), 2)


ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def allow(topic: str) -> Step:
    rule = create_acls.AclCreation(
        resource_type=2,
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:eve",
        host="*",
        operation=3,
        permission_type=3,
    )
    return ask(create_acls.CreateAclsRequest(creations=[rule]), 3)


def allow_no_more(topic: str) -> Step:
    rules = delete_acls.DeleteAclsFilter(**ANY_ACL | {"resource_name_filter": topic})
    return ask(delete_acls.DeleteAclsRequest(filters=[rules]), 3)


def set_quota(rate: int) -> Step:
    """Of somebody else: nobody here is slowed down."""
    entity = quotas.EntityData(entity_type="user", entity_name="eve")
    change = quotas.OpData(key="producer_byte_rate", value=float(rate), remove=rate == 0)
    entry = quotas.RequestEntryData(entity=[entity], ops=[change])
    return ask(quotas.AlterClientQuotasRequest(entries=[entry]), 1)


def set_password(iterations: int) -> Step:
    credential = users.ScramCredentialUpsertion(
        name="eve", mechanism=1, iterations=iterations, salt=b"s" * 16, salted_password=b"p" * 32
    )
    return ask(users.AlterUserScramCredentialsRequest(upsertions=[credential]), 0)


def join_consumer(is_leaving: bool) -> Step:
    def make(script: Script) -> Made:
        epoch = -1 if is_leaving else script.member_epoch
        script.member_epoch = 0 if is_leaving else 1
        request = ConsumerGroupHeartbeatRequest(
            group_id="balanced",
            member_id=MEMBER,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            subscribed_topic_names=["fixed0"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        return request, 1

    return make


def join_classic(script: Script) -> Made:
    """Each into a group of its own: a second member would wait for the first to join again."""
    script.joined += 1
    request = JoinGroupRequest(
        group_id=f"classic{script.joined}",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return request, 3


def sync(script: Script) -> Made:
    """By the leader of the group that was joined last, for itself."""
    member_id = f"ada-{script.joined}"
    part = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    request = SyncGroupRequest(
        group_id=f"classic{script.joined}",
        generation_id=1,
        member_id=member_id,
        assignments=[part],
    )
    return request, 3


def beat(script: Script) -> Made:
    request = HeartbeatRequest(
        group_id=f"classic{script.joined}", generation_id=1, member_id=f"ada-{script.joined}"
    )
    return request, 3


def leave(script: Script) -> Made:
    member = MemberIdentity(member_id=f"ada-{script.joined}")
    return LeaveGroupRequest(group_id=f"classic{script.joined}", members=[member]), 3


def join_streams(is_leaving: bool) -> Step:
    """A join makes the internal topic that the topology misses."""

    def make(script: Script) -> Made:
        epoch = -1 if is_leaving else script.streams_epoch
        script.streams_epoch = 0 if is_leaving else 1
        tasks: list[streams.TaskIds] | None = [] if epoch == 0 else None
        request = streams.StreamsGroupHeartbeatRequest(
            group_id="app",
            member_id=MEMBER,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
            topology=counting() if epoch == 0 else None,
            process_id="process",
            active_tasks=tasks,
            standby_tasks=tasks,
            warmup_tasks=tasks,
            client_tags=None,
            task_offsets=None,
            task_end_offsets=None,
        )
        return request, 0

    return make


def counting() -> streams.Topology:
    part = streams.Subtopology(
        subtopology_id="0",
        source_topics=["fixed0"],
        state_changelog_topics=[streams.TopicInfo(name="app-changelog")],
    )
    return streams.Topology(epoch=0, subtopologies=[part])


def join_share(is_leaving: bool) -> Step:
    def make(script: Script) -> Made:
        epoch = -1 if is_leaving else script.share_epoch
        script.share_epoch = 0 if is_leaving else 1
        request = ShareGroupHeartbeatRequest(
            group_id="queue",
            member_id=MEMBER,
            member_epoch=epoch,
            subscribed_topic_names=["fixed0"] if epoch == 0 else None,
        )
        return request, 1

    return make


def fetch_share(script: Script) -> Made:
    topic = ShareFetchTopic(
        topic_id=script.topic_ids["fixed0"], partitions=[ShareFetchPartition(partition_index=0)]
    )
    request = ShareFetchRequest(
        group_id="queue",
        member_id=MEMBER,
        share_session_epoch=script.share_session,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        max_records=1,
        batch_size=1,
        topics=[topic],
    )
    script.share_session += 1
    return request, 1


def acknowledge(offset: int, is_last: bool) -> Step:
    def make(script: Script) -> Made:
        batch = AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
        place = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id="queue",
            member_id=MEMBER,
            share_session_epoch=-1 if is_last else script.share_session,
            topics=[AcknowledgeTopic(topic_id=script.topic_ids["fixed0"], partitions=[place])],
        )
        script.share_session = 0 if is_last else script.share_session + 1
        return request, 1

    return make


def start_share_at(offset: int) -> Step:
    place = alter_share.AlterShareGroupOffsetsRequestPartition(
        partition_index=0, start_offset=offset
    )
    topic = alter_share.AlterShareGroupOffsetsRequestTopic(topic_name="fixed0", partitions=[place])
    return ask(alter_share.AlterShareGroupOffsetsRequest(group_id="queue", topics=[topic]), 0)


def forget_share(_: Script) -> Made:
    topic = delete_share.DeleteShareGroupOffsetsRequestTopic(topic_name="fixed0")
    return delete_share.DeleteShareGroupOffsetsRequest(group_id="queue", topics=[topic]), 0


def share_offsets(_: Script) -> Made:
    topic = describe_share.DescribeShareGroupOffsetsRequestTopic(
        topic_name="fixed0", partitions=[0]
    )
    group = describe_share.DescribeShareGroupOffsetsRequestGroup(group_id="queue", topics=[topic])
    return describe_share.DescribeShareGroupOffsetsRequest(groups=[group]), 1


def fetch(topic: str, is_committed: bool) -> Step:
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[place])]
    return lambda _: (FetchRequest(isolation_level=int(is_committed), topics=topics), 12)


def fetch_in_session(topic: str, epoch: int) -> Step:
    """0 opens a session, 1 goes on with the one that was opened last, -1 closes it."""

    def make(script: Script) -> Made:
        if epoch == 0:
            script.fetch_sessions += 1
        script.fetch_session = script.fetch_session + 1 if epoch == 1 else 0
        place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            session_id=script.fetch_sessions if epoch else 0,
            session_epoch=script.fetch_session if epoch == 1 else epoch,
            topics=[FetchTopic(topic=topic, partitions=[place])] if epoch >= 0 else [],
        )
        return request, 12

    return make


def ask(request: Message, version: int) -> Step:
    return lambda _: (request, version)


def list_offsets(topic: str) -> Step:
    place = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[place])]), 7)


def metadata(topic: str, is_creating: bool = False) -> Step:
    topics = [MetadataRequestTopic(name=topic)]
    return ask(MetadataRequest(topics=topics, allow_auto_topic_creation=is_creating), 9)


def describe_config(topic: str) -> Step:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=["retention.ms"]
    )
    return ask(DescribeConfigsRequest(resources=[resource]), 4)


# --- questions ------------------------------------------------------------------------------------

about_transaction = ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0)
about_classics = ask(DescribeGroupsRequest(groups=["classic1", "classic2", "readers"]), 5)
about_consumers = ask(ConsumerGroupDescribeRequest(group_ids=["balanced"]), 1)
about_sharers = ask(ShareGroupDescribeRequest(group_ids=["queue"]), 1)
about_streams = ask(StreamsGroupDescribeRequest(group_ids=["app"]), 0)
about_rules = ask(DescribeAclsRequest(**ANY_ACL), 3)
about_quotas = ask(DescribeClientQuotasRequest(components=[]), 1)
about_users = ask(DescribeUserScramCredentialsRequest(users=None), 0)
about_offsets = ask(
    OffsetFetchRequest(
        group_id="readers",
        topics=[OffsetFetchRequestTopic(name="fixed0", partition_indexes=[0])],
    ),
    7,
)
QUESTIONS: list[Step] = [
    about_transaction,
    about_classics,
    about_consumers,
    about_sharers,
    about_streams,
    share_offsets,
    about_rules,
    about_quotas,
    about_users,
    about_offsets,
]
# Asked after each mix: what the last requests of it have changed shows here.
TAIL: list[Step] = [
    *QUESTIONS,
    ask(ListGroupsRequest(), 5),
    ask(ListTransactionsRequest(), 2),
    *(
        question(topic)
        for topic in (*ALL_TOPICS, UNWAITED, "app-changelog")
        for question in (list_offsets, metadata, describe_config)
    ),
    *(fetch(topic, is_committed=False) for topic in (*FIXED_TOPICS, UNWAITED)),
]

# --- the mix --------------------------------------------------------------------------------------

Turn = list[Step]  # a request, and often the question behind it that shows its effect
Turns = SearchStrategy[Turn]
OTHER = st.sampled_from(OTHER_TOPICS)
OFFSETS = st.integers(0, 9)


def turns(make: Callable[..., Step], *values: SearchStrategy[Any]) -> Turns:
    return st.builds(lambda *said: [make(*said)], *values)


def shown_by(
    question: Callable[[Any], Step], make: Callable[[Any], Step], values: SearchStrategy[Any]
) -> Turns:
    """The question is about the same topic."""
    return st.builds(lambda value: [make(value), question(value)], values)


def in_turn(*steps: Step) -> Turns:
    """All of them, or the first ones, half of the time each."""
    some = st.integers(1, len(steps)).map(lambda count: list(steps[:count]))
    return st.just(list(steps)) | some


def always(step: Step) -> Callable[[Any], Step]:
    return lambda _: step


TURNS_BY_API: dict[ApiKey, list[Turns]] = {
    ApiKey.PRODUCE: [
        turns(write, TOPICS),
        turns(write, st.just(UNWAITED), st.sampled_from([0, 1, -1])),
        *[turns(write_in_transaction, FEW_FIXED)] * 3,
    ],
    ApiKey.FETCH: [
        turns(fetch, TOPICS, st.booleans()),
        turns(fetch_in_session, TOPICS, st.sampled_from([0, 1, -1])),
        in_turn(*(fetch_in_session("fixed0", epoch) for epoch in (0, 1, 1, -1))),
    ],
    ApiKey.METADATA: [
        turns(metadata, TOPICS, st.booleans()),
        shown_by(list_offsets, lambda topic: metadata(topic, is_creating=True), OTHER),
    ],
    ApiKey.OFFSET_COMMIT: [shown_by(always(about_offsets), commit, OFFSETS)],
    ApiKey.JOIN_GROUP: [in_turn(join_classic, about_classics)],
    ApiKey.HEARTBEAT: [st.just([beat])],
    ApiKey.LEAVE_GROUP: [in_turn(leave, beat)],
    ApiKey.SYNC_GROUP: [in_turn(join_classic, sync, beat, leave), in_turn(sync, about_classics)],
    ApiKey.CREATE_TOPICS: [shown_by(list_offsets, create, OTHER)],
    ApiKey.DELETE_TOPICS: [shown_by(list_offsets, delete_topic, OTHER)],
    ApiKey.INIT_PRODUCER_ID: [in_turn(renew_producer, about_transaction)],
    ApiKey.ADD_PARTITIONS_TO_TXN: [shown_by(always(about_transaction), add_partitions, FEW_FIXED)],
    ApiKey.ADD_OFFSETS_TO_TXN: [in_turn(add_offsets, about_transaction)],
    ApiKey.END_TXN: [turns(end_transaction, st.booleans())],
    ApiKey.TXN_OFFSET_COMMIT: [turns(commit_in_transaction, OFFSETS)],
    ApiKey.CREATE_ACLS: [shown_by(always(about_rules), allow, FIXED)],
    ApiKey.DELETE_ACLS: [in_turn(allow("fixed0"), allow_no_more("fixed0"), about_rules)],
    ApiKey.ALTER_CONFIGS: [shown_by(describe_config, configure_anew, FIXED)],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [shown_by(describe_config, configure, FIXED)],
    ApiKey.CREATE_PARTITIONS: [
        st.builds(lambda topic, n: [grow(topic, n), metadata(topic)], TOPICS, st.integers(1, 3))
    ],
    ApiKey.DELETE_GROUPS: [in_turn(delete_groups, about_offsets, about_streams)],
    ApiKey.OFFSET_DELETE: [in_turn(commit(4), delete_offsets, about_offsets)],
    ApiKey.ALTER_CLIENT_QUOTAS: [shown_by(always(about_quotas), set_quota, st.integers(0, 2))],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [
        shown_by(always(about_users), set_password, st.sampled_from([4096, 8192]))
    ],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [turns(join_consumer, st.booleans())],
    ApiKey.SHARE_GROUP_HEARTBEAT: [turns(join_share, st.booleans())],
    ApiKey.SHARE_FETCH: [st.just([fetch_share])],
    ApiKey.SHARE_ACKNOWLEDGE: [turns(acknowledge, st.integers(0, 2), st.booleans())],
    ApiKey.STREAMS_GROUP_HEARTBEAT: [
        turns(join_streams, st.booleans()),
        in_turn(join_streams(False), metadata("app-changelog")),
    ],
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: [
        shown_by(always(share_offsets), start_share_at, st.integers(0, 2))
    ],
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: [in_turn(start_share_at(0), forget_share, share_offsets)],
    # What is answered at once.
    ApiKey.LIST_OFFSETS: [turns(list_offsets, TOPICS)],
    ApiKey.DESCRIBE_CONFIGS: [turns(describe_config, TOPICS)],
}
NOT_IN_THE_MIX = {
    ApiKey.SASL_AUTHENTICATE: "these brokers ask for no login, and a refused one ends a connection",
}
MIX: SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        *(one for kinds in TURNS_BY_API.values() for one in kinds),
        st.sampled_from(QUESTIONS).map(lambda question: [question]),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: [step for turn in found for step in turn])
