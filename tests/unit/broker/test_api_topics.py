"""Metadata, CreateTopics, DeleteTopics, CreatePartitions and the APIs that describe topics."""

from typing import Any

import pytest

from millstream.broker.topics import INTERNAL_TOPICS, METADATA_TOPIC, OFFSETS_TOPIC
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millstream.broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from millstream.broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.broker.wire.messages.describe_cluster import DescribeClusterRequest
from millstream.broker.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from millstream.broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from millstream.broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from millstream.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.served_node import Serve, ServedNode

# --- metadata ---------------------------------------------------------------------------------


def ask_metadata(
    served: ServedNode, name: str, *, version: int = 12, may_create: bool = True
) -> MetadataResponseTopic:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=may_create
    )
    (topic,) = served.ask(request, version).topics
    assert isinstance(topic, MetadataResponseTopic)
    return topic


def test_the_node_is_broker_leader_and_controller_at_the_address_the_client_reached(
    served: ServedNode,
) -> None:
    served.create("orders", 2)
    answer: MetadataResponse = served.ask(MetadataRequest(topics=None))
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    assert answer.controller_id == 1
    assert answer.cluster_id == served.node.directory.cluster_id
    (orders,) = [topic for topic in answer.topics if topic.name == "orders"]
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in orders.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert not orders.is_internal


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None)])
def test_all_topics_are_listed_when_none_is_named(
    served: ServedNode, version: int, topics: Any
) -> None:
    served.create()
    answer = served.ask(MetadataRequest(topics=topics), version)
    assert {topic.name for topic in answer.topics} == {"orders", *INTERNAL_TOPICS}


def test_from_version_1_on_an_empty_list_means_no_topic(served: ServedNode) -> None:
    served.create()
    assert served.ask(MetadataRequest(topics=[]), 1).topics == []


def test_an_unknown_topic_is_created_when_client_and_settings_allow_it(serve: Serve) -> None:
    served = serve(default_partitions=3)
    refused = ask_metadata(served, "orders", may_create=False)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    created = ask_metadata(served, "orders")
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 3)
    assert created.topic_id == served.node.topics.named("orders").id


def test_before_version_4_a_client_cannot_decline(served: ServedNode) -> None:
    assert ask_metadata(served, "orders", version=3).error_code == ErrorCode.NONE


def test_requests_at_the_same_time_create_no_more_topics_than_are_allowed(serve: Serve) -> None:
    served = serve(auto_create_partitions_max=10)
    before = served.node.topics.partition_count
    asked = [
        served.ask_soon(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=f"new-{number}")], allow_auto_topic_creation=True
            ),
            12,
        )
        for number in range(30)
    ]
    for _ in range(1_000):
        if all(task.done() for task in asked):
            break
        served.settle()
        served.advance(1)
    codes = [task.result().topics[0].error_code for task in asked]
    assert served.node.topics.partition_count == 10
    assert codes.count(ErrorCode.NONE) == 10 - before
    assert codes.count(ErrorCode.POLICY_VIOLATION) == 30 - (10 - before)


def test_the_settings_can_forbid_it(serve: Serve) -> None:
    served = serve(auto_create_topics=False)
    assert ask_metadata(served, "orders").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "orders" not in served.node.topics


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused(served: ServedNode, name: str) -> None:
    assert ask_metadata(served, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_two_clients_that_name_a_new_topic_at_once_both_get_it(served: ServedNode) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    tasks = [served.ask_soon(request, 12) for _ in range(2)]
    served.settle()
    answers = [task.result().topics[0] for task in tasks]
    assert [answer.error_code for answer in answers] == [0, 0]
    assert answers[0].topic_id == answers[1].topic_id


def test_a_topic_is_found_by_its_id_and_an_unknown_id_never_creates_one(
    served: ServedNode,
) -> None:
    topic = served.create()
    wanted = [MetadataRequestTopic(topic_id=id_, name=None) for id_ in (topic.id, b"\x01" * 16)]
    found, unknown = served.ask(MetadataRequest(topics=wanted), 12).topics
    assert (found.error_code, found.name) == (ErrorCode.NONE, "orders")
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


# --- create -----------------------------------------------------------------------------------


def new(
    name: str = "orders", partitions: int = 1, replicas: int = 1, **more: Any
) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **more)


def create(
    served: ServedNode, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[CreatableTopicResult] = served.ask(request).topics
    return results


def test_a_created_topic_is_described_in_the_answer(served: ServedNode) -> None:
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    (answer,) = create(served, new(partitions=3, configs=[config]))
    topic = served.node.topics.named("orders")
    assert (answer.error_code, answer.topic_id) == (ErrorCode.NONE, topic.id)
    assert (answer.num_partitions, answer.replication_factor) == (3, 1)
    assert [(one.name, one.value, one.config_source) for one in answer.configs or ()] == [
        ("retention.ms", "1000", 1)
    ]
    assert topic.overrides == {"retention.ms": "1000"}


def test_minus_one_asks_for_the_defaults(serve: Serve) -> None:
    served = serve(default_partitions=4)
    (answer,) = create(served, new(partitions=-1, replicas=-1))
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.NONE, 4)


def test_validating_creates_nothing(served: ServedNode) -> None:
    (answer,) = create(served, new(), validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.NONE, 1)
    assert "orders" not in served.node.topics
    (answer,) = create(served, new("a/b"), validate_only=True)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_name_twice_in_one_request_is_refused_both_times(served: ServedNode) -> None:
    answers = create(served, new("twice"), new("once"), new("twice"))
    assert [answer.error_code for answer in answers] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert "twice" not in served.node.topics


def test_more_replicas_than_one_are_clamped_with_a_warning(
    served: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,) = create(served, new(replicas=3))
    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 1)
    assert "topic orders: 3 replicas were asked for; one node keeps 1" in caplog.text


@pytest.mark.parametrize("replicas", [0, -2])
def test_less_than_one_replica_is_refused(served: ServedNode, replicas: int) -> None:
    (answer,) = create(served, new(replicas=replicas))
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def assignments(*numbers: int) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in numbers]


def test_a_manual_assignment_says_how_many_partitions_there_are(served: ServedNode) -> None:
    topic = new(partitions=-1, replicas=-1, assignments=assignments(1, 0, 2))
    (answer,) = create(served, topic)
    assert (answer.error_code, answer.num_partitions) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("numbers", [(1,), (0, 2), (0, 0), (-1, 0)])
def test_a_manual_assignment_with_gaps_is_refused(
    served: ServedNode, numbers: tuple[int, ...]
) -> None:
    (answer,) = create(served, new(partitions=-1, replicas=-1, assignments=assignments(*numbers)))
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new(METADATA_TOPIC), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (new(partitions=10_001), ErrorCode.INVALID_PARTITIONS),
        (new("../up"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new(configs=[CreatableTopicConfig(name="no", value="1")]), ErrorCode.INVALID_CONFIG),
        (new(configs=[CreatableTopicConfig(name="retention.ms")]), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created_is_refused_with_a_reason(
    served: ServedNode, topic: CreatableTopic, code: ErrorCode
) -> None:
    served.create("there")
    (answer,) = create(served, topic)
    assert answer.error_code == code
    assert answer.error_message


# --- delete and grow --------------------------------------------------------------------------


def test_topics_are_deleted_by_name_or_by_id(served: ServedNode) -> None:
    first, second = served.create("first"), served.create("second")
    states = [
        DeleteTopicState(name="first"),
        DeleteTopicState(name=None, topic_id=second.id),
        DeleteTopicState(name="third"),
        DeleteTopicState(name=None, topic_id=b"\x01" * 16),
        DeleteTopicState(name=METADATA_TOPIC),
    ]
    answers = served.ask(DeleteTopicsRequest(topics=states)).responses
    assert [(one.name, one.error_code) for one in answers] == [
        ("first", ErrorCode.NONE),
        ("second", ErrorCode.NONE),
        ("third", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (METADATA_TOPIC, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert answers[0].topic_id == first.id


def test_before_version_6_topics_are_deleted_by_name(served: ServedNode) -> None:
    served.create()
    (answer,) = served.ask(DeleteTopicsRequest(topic_names=["orders"]), 1).responses
    assert (answer.name, answer.error_code) == ("orders", ErrorCode.NONE)
    assert "orders" not in served.node.topics


def grow(served: ServedNode, name: str, count: int, *, validate_only: bool = False) -> int:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], validate_only=validate_only)
    code: int = served.ask(request).results[0].error_code
    return code


def test_partitions_are_added_and_only_added(served: ServedNode) -> None:
    topic = served.create("orders", 2)
    assert grow(served, "orders", 4, validate_only=True) == ErrorCode.NONE
    assert len(topic.partitions) == 2
    assert grow(served, "orders", 4) == ErrorCode.NONE
    assert len(topic.partitions) == 4
    assert grow(served, "orders", 4) == ErrorCode.INVALID_PARTITIONS
    assert grow(served, "nothing", 4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(served, OFFSETS_TOPIC, 4) == ErrorCode.INVALID_TOPIC_EXCEPTION


# --- describe ---------------------------------------------------------------------------------


def describe(
    served: ServedNode, *names: str, limit: int = 2_000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    answer = served.ask(request)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def test_topics_are_described_in_pages_that_lose_and_repeat_nothing(served: ServedNode) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 4)):
        served.create(name, count)
    expected = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1), ("c", 2), ("c", 3)]
    for limit in range(1, 10):
        seen: list[tuple[str | None, int]] = []
        page = describe(served, "c", "a", "b", limit=limit)
        while True:
            here = [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            assert len(here) <= limit
            seen += here
            if page.next_cursor is None:
                break
            page = describe(served, "c", "a", "b", limit=limit, cursor=page.next_cursor)
        assert seen == expected, f"limit {limit}"


def test_without_names_all_topics_are_described(served: ServedNode) -> None:
    served.create()
    names = [topic.name for topic in describe(served).topics]
    assert names == sorted(["orders", *INTERNAL_TOPICS])


def test_an_unknown_topic_has_an_error_and_no_partitions(served: ServedNode) -> None:
    (topic,) = describe(served, "nothing").topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize("index", [-5, 99])
def test_a_cursor_beside_the_topic_does_no_harm(served: ServedNode, index: int) -> None:
    served.create("orders", 2)
    page = describe(served, "orders", cursor=Cursor(topic_name="orders", partition_index=index))
    assert len(page.topics[0].partitions) == (2 if index < 0 else 0)
    assert page.next_cursor is None


def test_the_log_directory_tells_sizes_and_space(served: ServedNode) -> None:
    served.create("orders", 2)
    served.produce(b"x" * 100)
    wanted = DescribableLogDirTopic(topic="orders", partitions=[0])
    unknown = DescribableLogDirTopic(topic="nothing", partitions=[0])
    answer = served.ask(DescribeLogDirsRequest(topics=[wanted, unknown]))
    (directory,) = answer.results
    (topic,) = directory.topics
    assert directory.log_dir == str(served.path)
    assert 0 < directory.usable_bytes <= directory.total_bytes
    sizes = {p.partition_index: p.partition_size for p in topic.partitions}
    assert sizes == {0: served.node.topics.named("orders").partitions[0].log.size_bytes}
    everything = served.ask(DescribeLogDirsRequest(topics=None)).results[0]
    assert {topic.name for topic in everything.topics} == {"orders", *INTERNAL_TOPICS}


def test_the_cluster_is_one_node(served: ServedNode) -> None:
    answer = served.ask(DescribeClusterRequest())
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    assert answer.controller_id == 1
    controllers = served.ask(DescribeClusterRequest(endpoint_type=2))
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_nothing_is_ever_being_moved(served: ServedNode) -> None:
    assert served.ask(ListPartitionReassignmentsRequest(topics=None)).topics == []
