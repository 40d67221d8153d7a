"""Every API that is offered, in every version of it: the table, and an answer that can be sent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.apis.api_18_api_versions import offered_versions
from millstream.broker.handlers import HANDLERS, Later
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import APIS, RESPONSES, ApiKey, ErrorCode, Message
from millstream.broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    txn_offset_commit,
    unregister_broker,
    update_features,
)
from millstream.broker.wire.messages import alter_partition_reassignments as reassignments
from tests.support.served_node import ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.group_steps import (
    JOIN_AT_ONCE,
    Joined,
    commit_request,
    join_request,
    sync_request,
)

# The table of what to offer, as far as this version goes.
OFFERED: dict[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}
EVERY_VERSION = [
    pytest.param(key, version, id=f"{key.name.lower()}-v{version}")
    for key, (first, last) in OFFERED.items()
    for version in range(first, last + 1)
]
NO_TOPIC = "x" * 32_767  # as long as a name can be on the wire


@dataclass
class World:
    """A node with something in it, and a name that no test used before."""

    served: ServedNode
    name: str
    version: int

    @property
    def topic_id(self) -> bytes:
        return self.served.node.topics.named("orders").id

    def member(self) -> Joined:
        joined = self.served.ask(join_request(group=self.name), JOIN_AT_ONCE)
        return Joined(joined.member_id, joined.generation_id)

    def stable(self) -> Joined:
        me = self.member()
        self.served.ask(sync_request(me.member_id, me.generation, group=self.name, all=b"all"))
        return me

    def producer(self) -> Identity:
        """A producer with the world's name as its transactional id."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000
        )
        given = self.served.ask(request)
        return Identity(given.producer_id, given.producer_epoch)

    def new_topic(self) -> str:
        return self.served.create(self.name).name


Make = Callable[[World], Message]


def produce_to(world: World, topic: str, topic_id: bytes) -> Message:
    request = produce_request(b"more", topic=topic)
    if world.version >= 13:
        request.topic_data[0].topic_id = topic_id
    return request


def add_request(world: World, who: Identity, topic: str) -> Message:
    wanted = add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[0])
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=world.name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[wanted],
    )


def add_offsets_request(world: World, who: Identity) -> Message:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=world.name,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id="readers",
    )


def end_request(world: World, who: Identity) -> Message:
    return end_txn.EndTxnRequest(
        transactional_id=world.name,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=True,
    )


def txn_commit_request(world: World, who: Identity) -> Message:
    place = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="orders", partitions=[place])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=world.name,
        group_id="readers",
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        topics=[topic],
    )


def ending(world: World) -> Message:
    who = world.producer()
    world.served.ask(add_request(world, who, "orders"))
    return end_request(world, who)


def committing(world: World) -> Message:
    who = world.producer()
    world.served.ask(add_offsets_request(world, who))
    return txn_commit_request(world, who)


def producers_request(topic: str) -> Message:
    wanted = describe_producers.TopicRequest(name=topic, partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[wanted])


def transactions_request(name: str) -> Message:
    return describe_transactions.DescribeTransactionsRequest(transactional_ids=[name])


def listing(pattern: str) -> Message:
    return list_transactions.ListTransactionsRequest(transactional_id_pattern=pattern)


NOBODY = Identity(4_711, 0)


def fetch_request(topic: str, topic_id: bytes, *, offset: int = 0) -> fetch.FetchRequest:
    place = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=[place])
    return fetch.FetchRequest(min_bytes=1, max_wait_ms=0, topics=[wanted])


def list_offsets_request(topic: str) -> list_offsets.ListOffsetsRequest:
    place = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[place])]
    )


def metadata_request(name: str | None) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )


def unknown_id(world: World) -> Message:
    """The name is null from version 10 on; in the answer it may be so from version 12 on."""
    wanted = metadata.MetadataRequestTopic(topic_id=b"\x01" * 16, name=None)
    request = metadata.MetadataRequest(topics=[wanted])
    return request if world.version >= 10 else metadata_request(NO_TOPIC)


def commit_of(world: World, topic: str) -> Message:
    """By name, and from version 10 on by id."""
    request = commit_request(1, group=world.name, topic=topic)
    topics = world.served.node.topics
    request.topics[0].topic_id = topics.named(topic).id if topic in topics else b"\x01" * 16
    return request


def join_consumers(world: World, **more: Any) -> Message:
    fields: dict[str, Any] = {"subscribed_topic_names": ["orders"]} | more
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=world.name, member_id="ada", rebalance_timeout_ms=1_000, **fields
    )


def describe_consumers(group: str) -> Message:
    return consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[group])


def offset_fetch_request(world: World, group: str) -> Message:
    if world.version < 8:
        wanted = offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        return offset_fetch.OffsetFetchRequest(group_id=group, topics=[wanted])
    is_known = group != NO_TOPIC
    topic_id = world.served.node.topics.named("orders").id if is_known else b"\x01" * 16
    place = offset_fetch.OffsetFetchRequestTopics(
        name="orders", topic_id=topic_id, partition_indexes=[0]
    )
    one = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[place])
    return offset_fetch.OffsetFetchRequest(groups=[one])


def find_request(key: str, key_type: int) -> Message:
    return find_coordinator.FindCoordinatorRequest(
        key=key, key_type=key_type, coordinator_keys=[key]
    )


def leave_request(world: World, member_id: str) -> Message:
    who = leave_group.MemberIdentity(member_id=member_id)
    return leave_group.LeaveGroupRequest(group_id=world.name, members=[who], member_id=member_id)


def create_request(name: str, **more: Any) -> Message:
    config = create_topics.CreatableTopicConfig(name="retention.ms", value="1000")
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, configs=[config], **more
    )
    return create_topics.CreateTopicsRequest(topics=[topic])


def delete_request(name: str, topic_id: bytes = bytes(16)) -> Message:
    state = delete_topics.DeleteTopicState(name=None if any(topic_id) else name, topic_id=topic_id)
    return delete_topics.DeleteTopicsRequest(topics=[state], topic_names=[name])


def move_request(path: str) -> Message:
    topic = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="orders", partitions=[0])
    wanted = alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=[topic])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[wanted])


def reassign_request(replicas: list[int] | None) -> Message:
    partition = reassignments.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = reassignments.ReassignableTopic(name="orders", partitions=[partition])
    return reassignments.AlterPartitionReassignmentsRequest(topics=[topic])


def quorum_request(topic: str) -> Message:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    wanted = describe_quorum.RequestTopicData(topic_name=topic, partitions=[partition])
    return describe_quorum.DescribeQuorumRequest(topics=[wanted])


def features_request(feature: str) -> Message:
    update = update_features.FeatureUpdateKey(feature=feature, max_version_level=1)
    return update_features.UpdateFeaturesRequest(feature_updates=[update])


def delete_records_request(topic: str, offset: int) -> Message:
    place = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = delete_records.DeleteRecordsTopic(name=topic, partitions=[place])
    return delete_records.DeleteRecordsRequest(topics=[wanted])


def epoch_request(topic: str) -> Message:
    place = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    wanted = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[place])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[wanted])


ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}


def create_acls_request(topic: str, operation: int = 3) -> Message:
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:ada",
        host="*",
        operation=operation,
        permission_type=3,
    )
    return create_acls.CreateAclsRequest(creations=[creation])


def delete_acls_request(topic: str, operation: int = 1) -> Message:
    wanted = ANY_ACL | {"resource_name_filter": topic, "operation": operation}
    return delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**wanted)])


def describe_configs_request(name: str) -> Message:
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=resource, configuration_keys=None
        )
        for kind, resource in ((2, name), (4, "1"), (4, ""), (8, "1"))
    ]
    return describe_configs.DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )


def alter_request(topic: str, value: str | None) -> Message:
    config = alter_configs.AlterableConfig(name="retention.ms", value=value)
    resource = alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[config]
    )
    return alter_configs.AlterConfigsRequest(resources=[resource])


def incremental_request(topic: str, value: str | None) -> Message:
    config = incremental_alter_configs.AlterableConfig(name="retention.ms", value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def log_dirs_request(topic: str) -> Message:
    wanted = describe_log_dirs.DescribableLogDirTopic(topic=topic, partitions=[0])
    return describe_log_dirs.DescribeLogDirsRequest(topics=[wanted])


def grow_request(topic: str, count: int) -> Message:
    wanted = create_partitions.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return create_partitions.CreatePartitionsRequest(topics=[wanted])


def offset_delete_request(group: str) -> Message:
    place = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    wanted = offset_delete.OffsetDeleteRequestTopic(name="orders", partitions=[place])
    return offset_delete.OffsetDeleteRequest(group_id=group, topics=[wanted])


def partitions_request(topic: str) -> Message:
    wanted = describe_topic_partitions.TopicRequest(name=topic)
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[wanted])


def sync_of(world: World) -> Message:
    me = world.member()
    return sync_request(me.member_id, me.generation, group=world.name, all=b"all")


def heartbeat_of(world: World, generation: int | None = None) -> Message:
    me = world.stable()
    return heartbeat.HeartbeatRequest(
        group_id=world.name,
        member_id=me.member_id,
        generation_id=me.generation if generation is None else generation,
    )


# --- share groups ------------------------------------------------------------------------------

SHARING = "AAAAAAAAAAAAAAAAAAAAAQ"  # a member's id must be a UUID where records are fetched


def join_sharing(world: World, **more: Any) -> Message:
    fields: dict[str, Any] = {"member_epoch": 0, "subscribed_topic_names": ["orders"]} | more
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=world.name, member_id=SHARING, **fields
    )


def describe_sharing(world: World) -> Message:
    world.served.ask(join_sharing(world))
    return share_group_describe.ShareGroupDescribeRequest(group_ids=[world.name])


# --- streams groups ----------------------------------------------------------------------------


def join_streams(world: World, *changelogs: str, **more: Any) -> Message:
    """An instance of an application that reads `orders`, and keeps these changelogs."""
    reads = streams_group_heartbeat.Subtopology(
        subtopology_id="0",
        source_topics=["orders"],
        state_changelog_topics=[streams_group_heartbeat.TopicInfo(name=one) for one in changelogs],
    )
    epoch = more.pop("member_epoch", 0)
    topology = streams_group_heartbeat.Topology(epoch=0, subtopologies=[reads])
    fields: dict[str, Any] = {
        "topology": None if epoch else topology,
        "rebalance_timeout_ms": 60_000,
        "process_id": "process",
        "task_offsets": None,
        "task_end_offsets": None,
    } | more
    return streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        group_id=world.name, member_id="thread", member_epoch=epoch, **fields
    )


def describe_streams(world: World) -> Message:
    world.served.ask(join_streams(world))
    return streams_group_describe.StreamsGroupDescribeRequest(group_ids=[world.name])


def share_from_the_start(world: World) -> None:
    config = incremental_alter_configs.AlterableConfig(
        name="share.auto.offset.reset", value="earliest"
    )
    group = incremental_alter_configs.AlterConfigsResource(
        resource_type=32, resource_name=world.name, configs=[config]
    )
    world.served.ask(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[group]))


def share_fetch_request(world: World, topic_id: bytes, **more: Any) -> Message:
    wanted = share_fetch.FetchTopic(
        topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)]
    )
    return share_fetch.ShareFetchRequest(
        group_id=world.name, member_id=SHARING, max_bytes=1 << 20, max_records=1, batch_size=1,
        topics=[wanted], **more,
    )  # fmt: skip


def fetching_a_share(world: World) -> Message:
    world.served.ask(join_sharing(world))
    return share_fetch_request(world, world.topic_id)


def acknowledging(world: World) -> Message:
    """What it has fetched: one record, the first."""
    share_from_the_start(world)
    world.served.ask(join_sharing(world))
    world.served.ask(share_fetch_request(world, world.topic_id, max_wait_ms=1_000))
    batch = share_acknowledge.AcknowledgementBatch(
        first_offset=0, last_offset=0, acknowledge_types=[1]
    )
    place = share_acknowledge.AcknowledgePartition(
        partition_index=0, acknowledgement_batches=[batch]
    )
    topic = share_acknowledge.AcknowledgeTopic(topic_id=world.topic_id, partitions=[place])
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=world.name, member_id=SHARING, share_session_epoch=1, topics=[topic]
    )


def empty_queue(world: World) -> None:
    """A share group that a member has left."""
    world.served.ask(join_sharing(world))
    world.served.ask(join_sharing(world, member_epoch=-1, subscribed_topic_names=None))


def sharing_offsets(group: str, topic: str = "orders") -> Message:
    wanted = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
        topic_name=topic, partitions=[0]
    )
    one = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=group, topics=[wanted]
    )
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[one])


def describing_offsets(world: World) -> Message:
    empty_queue(world)
    return sharing_offsets(world.name)


def altering_offsets(world: World, topic: str = "orders") -> Message:
    empty_queue(world)
    place = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
        partition_index=0, start_offset=1
    )
    wanted = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name=topic, partitions=[place]
    )
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=world.name, topics=[wanted]
    )


def deleting_offsets(world: World, topic: str = "orders") -> Message:
    world.served.ask(altering_offsets(world))
    wanted = delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=world.name, topics=[wanted]
    )


# --- logins and quotas -------------------------------------------------------------------------


def quota_request(name: str, key: str = "producer_byte_rate") -> Message:
    entity = alter_client_quotas.EntityData(entity_type="user", entity_name=name)
    change = alter_client_quotas.OpData(key=key, value=1000.0)
    entry = alter_client_quotas.RequestEntryData(entity=[entity], ops=[change])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def user_request(name: str) -> Message:
    credential = alter_user_scram_credentials.ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[credential])


# A request that succeeds.
NORMAL: dict[ApiKey, Make] = {
    ApiKey.PRODUCE: lambda world: produce_to(world, "orders", world.topic_id),
    ApiKey.FETCH: lambda world: fetch_request("orders", world.topic_id),
    ApiKey.LIST_OFFSETS: lambda world: list_offsets_request("orders"),
    ApiKey.METADATA: lambda world: metadata_request("orders"),
    ApiKey.OFFSET_COMMIT: lambda world: commit_of(world, "orders"),
    ApiKey.OFFSET_FETCH: lambda world: offset_fetch_request(world, "readers"),
    ApiKey.FIND_COORDINATOR: lambda world: find_request("readers", 0),
    ApiKey.JOIN_GROUP: lambda world: join_request(group=world.name, instance_id="desk"),
    ApiKey.HEARTBEAT: heartbeat_of,
    ApiKey.LEAVE_GROUP: lambda world: leave_request(world, world.stable().member_id),
    ApiKey.SYNC_GROUP: sync_of,
    ApiKey.DESCRIBE_GROUPS: lambda world: describe_groups.DescribeGroupsRequest(
        groups=[world.name if world.stable() else ""]
    ),
    ApiKey.LIST_GROUPS: lambda world: list_groups.ListGroupsRequest(),
    ApiKey.API_VERSIONS: lambda world: api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1.0"
    ),
    ApiKey.CREATE_TOPICS: lambda world: create_request(world.name),
    ApiKey.DELETE_TOPICS: lambda world: delete_request(world.new_topic()),
    ApiKey.DELETE_RECORDS: lambda world: delete_records_request("orders", 0),
    ApiKey.INIT_PRODUCER_ID: lambda world: init_producer_id.InitProducerIdRequest(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda world: epoch_request("orders"),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda world: add_request(world, world.producer(), "orders"),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda world: add_offsets_request(world, world.producer()),
    ApiKey.END_TXN: ending,
    ApiKey.TXN_OFFSET_COMMIT: committing,
    ApiKey.DESCRIBE_PRODUCERS: lambda world: producers_request("orders"),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda world: transactions_request(
        world.name if world.producer() else ""
    ),
    ApiKey.LIST_TRANSACTIONS: lambda world: listing(".*"),
    ApiKey.DESCRIBE_ACLS: lambda world: describe_acls.DescribeAclsRequest(**ANY_ACL),
    ApiKey.CREATE_ACLS: lambda world: create_acls_request(world.name),
    ApiKey.DELETE_ACLS: lambda world: delete_acls_request(world.name),
    ApiKey.DESCRIBE_CONFIGS: lambda world: describe_configs_request("orders"),
    ApiKey.ALTER_CONFIGS: lambda world: alter_request("orders", "5000"),
    ApiKey.DESCRIBE_LOG_DIRS: lambda world: log_dirs_request("orders"),
    ApiKey.CREATE_PARTITIONS: lambda world: grow_request(world.new_topic(), 2),
    ApiKey.DELETE_GROUPS: lambda world: delete_groups.DeleteGroupsRequest(
        groups_names=[world.served.ask(commit_request(1, group=world.name), 9) and world.name]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda world: incremental_request("orders", "5000"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda world: (
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda world: move_request(
        str(world.served.node.directory.path.absolute())
    ),
    ApiKey.ELECT_LEADERS: lambda world: elect_leaders.ElectLeadersRequest(topic_partitions=None),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda world: reassign_request([1]),
    ApiKey.DESCRIBE_QUORUM: lambda world: quorum_request("__cluster_metadata"),
    ApiKey.UPDATE_FEATURES: lambda world: features_request("group.version"),
    ApiKey.UNREGISTER_BROKER: lambda world: unregister_broker.UnregisterBrokerRequest(broker_id=7),
    ApiKey.OFFSET_DELETE: lambda world: offset_delete_request("readers"),
    ApiKey.DESCRIBE_CLUSTER: lambda world: describe_cluster.DescribeClusterRequest(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: join_consumers,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda world: describe_consumers(
        world.served.ask(join_consumers(world)) and world.name
    ),
    ApiKey.LIST_CONFIG_RESOURCES: lambda world: list_config_resources.ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda world: partitions_request("orders"),
    ApiKey.SASL_HANDSHAKE: lambda world: sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: lambda world: sasl_authenticate.SaslAuthenticateRequest(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda world: (
        describe_client_quotas.DescribeClientQuotasRequest()
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda world: quota_request(world.name),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda world: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=[])
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda world: user_request(world.name),
    ApiKey.SHARE_GROUP_HEARTBEAT: join_sharing,
    ApiKey.SHARE_GROUP_DESCRIBE: describe_sharing,
    ApiKey.SHARE_FETCH: fetching_a_share,
    ApiKey.SHARE_ACKNOWLEDGE: acknowledging,
    ApiKey.STREAMS_GROUP_HEARTBEAT: join_streams,
    ApiKey.STREAMS_GROUP_DESCRIBE: describe_streams,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describing_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: altering_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: deleting_offsets,
}

# A request that is refused, where there is one.
REFUSED: dict[ApiKey, Make] = {
    ApiKey.PRODUCE: lambda world: produce_to(world, NO_TOPIC, b"\x01" * 16),
    ApiKey.FETCH: lambda world: fetch_request(NO_TOPIC, b"\x01" * 16),
    ApiKey.LIST_OFFSETS: lambda world: list_offsets_request(NO_TOPIC),
    ApiKey.METADATA: unknown_id,
    ApiKey.OFFSET_COMMIT: lambda world: commit_of(world, NO_TOPIC),
    ApiKey.OFFSET_FETCH: lambda world: offset_fetch_request(world, NO_TOPIC),
    ApiKey.FIND_COORDINATOR: lambda world: find_request(NO_TOPIC, 9),
    ApiKey.JOIN_GROUP: lambda world: join_request("nobody", group=NO_TOPIC),
    ApiKey.HEARTBEAT: lambda world: heartbeat_of(world, generation=99),
    ApiKey.LEAVE_GROUP: lambda world: leave_request(world, NO_TOPIC),
    ApiKey.SYNC_GROUP: lambda world: sync_request("nobody", 1, group=NO_TOPIC),
    ApiKey.DESCRIBE_GROUPS: lambda world: describe_groups.DescribeGroupsRequest(groups=[NO_TOPIC]),
    ApiKey.CREATE_TOPICS: lambda world: create_request(NO_TOPIC),
    ApiKey.DELETE_TOPICS: lambda world: delete_request(NO_TOPIC, b"\x01" * 16),
    ApiKey.DELETE_RECORDS: lambda world: delete_records_request(NO_TOPIC, 0),
    ApiKey.INIT_PRODUCER_ID: lambda world: init_producer_id.InitProducerIdRequest(
        transactional_id=NO_TOPIC
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda world: epoch_request(NO_TOPIC),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda world: add_request(world, world.producer(), NO_TOPIC),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda world: add_offsets_request(world, NOBODY),
    ApiKey.END_TXN: lambda world: end_request(world, NOBODY),
    ApiKey.TXN_OFFSET_COMMIT: lambda world: txn_commit_request(world, NOBODY),
    ApiKey.DESCRIBE_PRODUCERS: lambda world: producers_request(NO_TOPIC),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda world: transactions_request(NO_TOPIC),
    ApiKey.LIST_TRANSACTIONS: lambda world: listing("("),
    ApiKey.DESCRIBE_ACLS: lambda world: describe_acls.DescribeAclsRequest(resource_type_filter=0),
    ApiKey.CREATE_ACLS: lambda world: create_acls_request(world.name, operation=0),
    ApiKey.DELETE_ACLS: lambda world: delete_acls_request(world.name, operation=0),
    ApiKey.DESCRIBE_CONFIGS: lambda world: describe_configs_request(NO_TOPIC),
    ApiKey.ALTER_CONFIGS: lambda world: alter_request("orders", NO_TOPIC),
    ApiKey.CREATE_PARTITIONS: lambda world: grow_request(NO_TOPIC, 2),
    ApiKey.DELETE_GROUPS: lambda world: delete_groups.DeleteGroupsRequest(groups_names=[NO_TOPIC]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda world: incremental_request("orders", NO_TOPIC),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda world: move_request("/elsewhere"),
    ApiKey.ELECT_LEADERS: lambda world: elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic="orders", partitions=[0])]
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda world: reassign_request(None),
    ApiKey.DESCRIBE_QUORUM: lambda world: quorum_request(NO_TOPIC),
    ApiKey.UPDATE_FEATURES: lambda world: features_request(NO_TOPIC),
    ApiKey.UNREGISTER_BROKER: lambda world: unregister_broker.UnregisterBrokerRequest(broker_id=1),
    ApiKey.OFFSET_DELETE: lambda world: offset_delete_request(NO_TOPIC),
    ApiKey.DESCRIBE_CLUSTER: lambda world: describe_cluster.DescribeClusterRequest(endpoint_type=2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda world: join_consumers(world, server_assignor=NO_TOPIC),
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda world: describe_consumers(NO_TOPIC),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda world: partitions_request(NO_TOPIC),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda world: quota_request(world.name, key="patience"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda world: user_request(""),
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda world: join_sharing(world, member_epoch=7),
    ApiKey.SHARE_GROUP_DESCRIBE: lambda world: share_group_describe.ShareGroupDescribeRequest(
        group_ids=[NO_TOPIC]
    ),
    ApiKey.SHARE_FETCH: lambda world: share_fetch_request(world, b"\x01" * 16),
    ApiKey.SHARE_ACKNOWLEDGE: lambda world: share_acknowledge.ShareAcknowledgeRequest(
        group_id=world.name, member_id=SHARING, share_session_epoch=7
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: lambda world: join_streams(world, member_epoch=7),
    ApiKey.STREAMS_GROUP_DESCRIBE: lambda world: streams_group_describe.StreamsGroupDescribeRequest(
        group_ids=[NO_TOPIC]
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda world: altering_offsets(world, NO_TOPIC),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda world: deleting_offsets(world, NO_TOPIC),
}
# Where one of these is given, the version cannot say more.
SILENT = {
    (ApiKey.DESCRIBE_CLUSTER, 0),  # has no endpoint type
    (ApiKey.FIND_COORDINATOR, 0),  # has no key type
    *((ApiKey.LIST_TRANSACTIONS, version) for version in range(2)),  # have no pattern
    *((ApiKey.DESCRIBE_GROUPS, version) for version in range(6)),  # an unknown group is dead
    *((ApiKey.OFFSET_FETCH, version) for version in range(1, 10)),  # no offset is no error
}


@pytest.fixture(scope="module")
def full_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    path: Path = tmp_path_factory.mktemp("node")
    served = ServedNode(path, disk=SimulatedDisk(path))
    served.create("orders", 2)
    served.produce(b"a", b"b")
    served.ask(commit_request(1), 9)
    yield served
    served.close()


def errors_in(message: object) -> set[int]:
    """Every error code in an answer, at whatever depth."""
    if isinstance(message, list):
        return {code for item in message for code in errors_in(item)}
    if not isinstance(message, Message):
        return set()
    found: set[int] = set()
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        is_code = field.name in ("error_code", "partition_error_code")
        found |= {value} if is_code else errors_in(value)
    return found - {0}


def test_what_is_offered_is_what_the_table_says() -> None:
    offered = {
        ApiKey(api.api_key): (api.min_version, api.max_version)
        for api in offered_versions().api_keys
    }
    assert offered == OFFERED


def test_no_version_is_offered_that_the_wire_does_not_know() -> None:
    for key, handler in HANDLERS.items():
        api = APIS[ApiKey(key)]
        assert all(api.has_version(version) for version in handler.versions)
        assert handler.versions.step == 1


def test_only_a_long_poll_ends_with_its_connection() -> None:
    """Whatever changes something must be finished: half of it would be on disk."""
    ending = {ApiKey(key) for key, handler in HANDLERS.items() if handler.ends_with_connection}
    assert ending == {ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SASL_AUTHENTICATE}


def test_every_api_has_a_request_here() -> None:
    assert NORMAL.keys() == OFFERED.keys()
    assert REFUSED.keys() <= OFFERED.keys()


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_an_answer_can_be_sent_in_every_version(
    full_node: ServedNode, key: ApiKey, version: int
) -> None:
    world = World(full_node, f"{key.name.lower()}-{version}", version)
    answer = full_node.ask(NORMAL[key](world), version)
    assert isinstance(answer, RESPONSES[key])
    expected: set[int] = set()
    if key is ApiKey.JOIN_GROUP and version == 4:  # an instance id is known from version 5 on
        expected = {ErrorCode.MEMBER_ID_REQUIRED}
    if key is ApiKey.DESCRIBE_CONFIGS:
        expected = {ErrorCode.INVALID_REQUEST}  # of the resource type that has none
    if key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        expected = {ErrorCode.ILLEGAL_SASL_STATE}  # nobody logs in at a node without listeners
    if key is ApiKey.UNREGISTER_BROKER:
        expected = {ErrorCode.BROKER_ID_NOT_REGISTERED}  # there is no broker that could go
    assert errors_in(answer) == expected


@pytest.mark.parametrize(("key", "version"), [p for p in EVERY_VERSION if p.values[0] in REFUSED])
def test_a_refusal_can_be_sent_in_every_version(
    full_node: ServedNode, key: ApiKey, version: int
) -> None:
    world = World(full_node, f"no-{key.name.lower()}-{version}", version)
    answer = full_node.ask(REFUSED[key](world), version)
    assert isinstance(answer, RESPONSES[key])
    assert bool(errors_in(answer)) == ((key, version) not in SILENT)


def test_an_answer_that_comes_before_it_is_waited_for_is_not_lost() -> None:
    arrived: list[Message] = []
    early, late = Later(), Later()
    answer = heartbeat.HeartbeatResponse()
    early.resolve(answer)
    early.then(arrived.append)
    late.then(arrived.append)
    late.resolve(answer)
    assert arrived == [answer, answer]
