"""Requests that come together on one connection do what they do one by one.

Random mixes of APIs are written at once, cut at random places, to one broker, and one by one, each
after the answer to the one before, to another broker. Both give the same answers, in the order of
the requests: an effect that is late, or early, shows in the answers to the questions after it.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.record import Record
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import Message, encode_request
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
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from millstream.broker.wire.messages.end_txn import EndTxnRequest
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from millstream.broker.wire.messages.init_producer_id import InitProducerIdRequest
from millstream.broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
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
from millstream.broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.log.record_batch import TRANSACTIONAL, encode_batch
from tests.support.batches import NOW_MS
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import SimulatedDisk
from tests.support.socketless_client import SocketlessClient

FIXED_TOPICS = ("fixed0", "fixed1", "fixed2")  # always there: writes of transactions go there
OTHER_TOPICS = ("other0", "other1")
ALL_TOPICS = FIXED_TOPICS + OTHER_TOPICS
MEMBER = "7f0c1c2e-5d6b-4a3e-9f10-0123456789ab"
A_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

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
    joined: int = 0

    def end(self) -> None:
        """The next transaction has an epoch of its own."""
        self.who = Identity(self.who.producer_id, self.who.epoch + 1)
        self.sequences.clear()
        self.is_open = False


Made = tuple[Message, int]
Step = Callable[[Script], Made]


# --- requests, made when it is their turn ---------------------------------------------------------


def write(topic: str) -> Step:
    record = [Record(value=b"plain", timestamp_ms=NOW_MS)]
    data = PartitionProduceData(index=0, records=encode_batch(record))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return lambda _: (ProduceRequest(acks=-1, topic_data=topics), 12)


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


def create(topic: str) -> Step:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return lambda _: (CreateTopicsRequest(topics=[wanted]), 6)


def configure(topic: str) -> Step:
    config = AlterableConfig(name="retention.ms", config_operation=0, value="123456")
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    return lambda _: (IncrementalAlterConfigsRequest(resources=[resource]), 1)


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


def fetch(topic: str, is_committed: bool) -> Step:
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[place])]
    return lambda _: (FetchRequest(isolation_level=int(is_committed), topics=topics), 12)


def ask(request: Message, version: int) -> Step:
    return lambda _: (request, version)


def list_offsets(topic: str) -> Step:
    place = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[place])]), 7)


def metadata(topic: str) -> Step:
    topics = [MetadataRequestTopic(name=topic)]
    return ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)


def describe_config(topic: str) -> Step:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=["retention.ms"]
    )
    return ask(DescribeConfigsRequest(resources=[resource]), 4)


STEPS = st.one_of(
    st.builds(write, TOPICS),
    *[st.builds(write_in_transaction, FEW_FIXED)] * 3,
    st.builds(add_partitions, FEW_FIXED),
    st.just(add_offsets),
    st.builds(commit_in_transaction, st.integers(0, 9)),
    st.builds(end_transaction, st.booleans()),
    st.just(renew_producer),
    st.builds(commit, st.integers(0, 9)),
    st.builds(create, TOPICS),
    st.builds(
        lambda topic: ask(DeleteTopicsRequest(topic_names=[topic]), 5),
        st.sampled_from(OTHER_TOPICS),
    ),
    st.builds(
        lambda topic, count: ask(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=count)]), 3
        ),
        TOPICS,
        st.integers(1, 3),
    ),
    st.builds(configure, TOPICS),
    st.builds(join_consumer, st.booleans()),
    st.just(join_classic),
    st.builds(join_share, st.booleans()),
    st.just(fetch_share),
    st.builds(acknowledge, st.integers(0, 2), st.booleans()),
    st.builds(fetch, TOPICS, st.booleans()),
    st.builds(list_offsets, TOPICS),
    st.builds(metadata, TOPICS),
    st.builds(describe_config, TOPICS),
    st.sampled_from(
        [
            ask(DeleteGroupsRequest(groups_names=["readers", "balanced", "queue"]), 2),
            ask(DescribeTransactionsRequest(transactional_ids=["tx"]), 0),
            ask(DescribeGroupsRequest(groups=["classic1", "classic2", "readers"]), 5),
            ask(ConsumerGroupDescribeRequest(group_ids=["balanced"]), 1),
            ask(ShareGroupDescribeRequest(group_ids=["queue"]), 1),
            ask(
                OffsetFetchRequest(
                    group_id="readers",
                    topics=[OffsetFetchRequestTopic(name="fixed0", partition_indexes=[0])],
                ),
                7,
            ),
        ]
    ),
)


# --- two brokers --------------------------------------------------------------------------------


@contextmanager
def opened() -> Iterator[tuple[ServedNode, Script]]:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "data").mkdir()
        disk = SimulatedDisk(Path(directory) / "data")  # as syncs of a real one take long
        served = ServedNode(Path(directory) / "data", disk=disk)
        try:
            ids = {topic: served.create(topic).id for topic in FIXED_TOPICS}
            answer = served.ask(
                InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4
            )
            who = Identity(answer.producer_id, answer.producer_epoch)
            yield served, Script(who, ids)
        finally:
            served.settle()
            served.crash()


def frames_of(steps: list[Step], script: Script) -> list[bytes]:
    made = [step(script) for step in steps]
    return [
        b"".join(encode_request(request, version, correlation_id=number, client_id="ada"))
        for number, (request, version) in enumerate(made)
    ]


def comparable(answers: list[bytes], served: ServedNode, script: Script) -> list[bytes]:
    """Without what is drawn at random by each broker: ids of itself, of topics and members."""
    cleaned = []
    cluster_id = served.node.directory.cluster_id.encode()
    for answer in answers:
        for topic, topic_id in script.topic_ids.items():
            answer = answer.replace(topic_id, topic.ljust(16).encode())
            answer = answer.replace(topic_id.hex().encode(), topic.encode())  # within a message
        cleaned.append(A_UUID.sub(b"a uuid", answer.replace(cluster_id, b"a cluster")))
    return cleaned


def together(steps: list[Step], cuts: list[float]) -> list[bytes]:
    with opened() as (served, script):
        data = b"".join(frames_of(steps, script))
        places = sorted({round(cut * len(data)) for cut in cuts} | {0, len(data)})
        client = SocketlessClient(served)
        for start, end in pairwise(places):
            client.send_bytes(data[start:end])
        return comparable(client.until_answered(len(steps)), served, script)


def one_by_one(steps: list[Step]) -> list[bytes]:
    with opened() as (served, script):
        client = SocketlessClient(served)
        for number, frame in enumerate(frames_of(steps, script), 1):
            client.send_bytes(frame)
            client.until_answered(number)
            served.settle()
        return comparable(client.answers(), served, script)


@settings(max_examples=60)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=14),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_requests_that_come_together_do_what_they_do_one_by_one(
    steps: list[Step], cuts: list[float]
) -> None:
    assert together(steps, cuts) == one_by_one(steps)
