"""StreamsGroupHeartbeat (KIP-1071), request by request: what is refused and said, as by Kafka."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.broker.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from millstream.broker.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import create_topic, eventually
from tests.clients.streams_group_steps import (
    NO_TASKS,
    asked,
    beat,
    join_streams,
    leave_streams,
    reading,
)
from tests.support.raw_client import RawClient

MISSING_SOURCES, WRONG_PARTITIONS, MISSING_INTERNAL, SHUTDOWN = 1, 2, 3, 4


@pytest.fixture
def source(admin: AdminClient, topic: str) -> str:
    create_topic(admin, topic, partitions=2)
    return topic


@pytest.fixture
def application(bootstrap: str, group: str) -> str:
    """A group whose first member need not wait for others."""
    configure_group(bootstrap, group, streams_initial_rebalance_delay_ms="0")
    return group


def join(
    client: RawClient, group: str, topology: Topology | None, **said: Any
) -> StreamsGroupHeartbeatResponse:
    whole = {"member_id": "ada", "rebalance_timeout_ms": 60_000, "process_id": "p"}
    return asked(client, group, **(whole | NO_TASKS | {"topology": topology} | said))


def statuses(answer: StreamsGroupHeartbeatResponse) -> set[int]:
    return {one.status_code for one in answer.status or ()}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "one"}, ErrorCode.INVALID_REQUEST),
        ({"task_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"standby_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 3, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        (
            {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_request_that_is_not_well_formed_is_refused(
    bootstrap: str, group: str, source: str, said: dict[str, Any], error: ErrorCode
) -> None:
    with RawClient(bootstrap) as client:
        fields = {"topology": reading(source)} | said
        assert join(client, group, **fields).error_code == error


@pytest.mark.parametrize(
    ("subtopology", "error"),
    [
        (Subtopology(subtopology_id="0", source_topic_regex=["w.*"]), ErrorCode.INVALID_REQUEST),
        (
            Subtopology(
                subtopology_id="0",
                source_topics=["words"],
                state_changelog_topics=[TopicInfo(name="counts", partitions=2)],
            ),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            Subtopology(subtopology_id="0", source_topics=["__consumer_offsets"]),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            Subtopology(subtopology_id="0", source_topics=["no topic"]),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (  # nobody writes its repartition topic
            Subtopology(subtopology_id="0", repartition_source_topics=[TopicInfo(name="by-word")]),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (  # only its own reader does
            Subtopology(
                subtopology_id="0",
                repartition_source_topics=[TopicInfo(name="round")],
                repartition_sink_topics=["round"],
            ),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
    ],
)
def test_a_topology_that_cannot_be_is_refused(
    bootstrap: str, group: str, subtopology: Subtopology, error: ErrorCode
) -> None:
    with RawClient(bootstrap) as client:
        answer = join(client, group, Topology(epoch=0, subtopologies=[subtopology]))
        assert answer.error_code == error


def test_epochs_members_and_tasks_that_are_not_known_are_refused(
    bootstrap: str, application: str, source: str
) -> None:
    with RawClient(bootstrap) as client:
        told = join_streams(client, application, source)
        epoch = told.member_epoch
        assert [(one.subtopology_id, one.partitions) for one in told.active_tasks or ()] == [
            ("0", [0, 1])
        ]
        codes = [
            asked(client, application, member_id="eve", member_epoch=1).error_code,
            asked(client, application, member_id="thread", member_epoch=epoch + 1).error_code,
            asked(
                client,
                application,
                member_id="thread",
                member_epoch=epoch,
                **NO_TASKS | {"active_tasks": [TaskIds(subtopology_id="0", partitions=[2])]},
            ).error_code,
            join(client, application, reading("another")).error_code,
        ]
        assert codes == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        leave_streams(client, application, "thread")


def test_a_consumer_does_not_get_a_streams_group_not_even_an_empty_one(
    bootstrap: str, application: str, source: str
) -> None:
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=application,
        member_id="eve",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[source],
        topic_partitions=[],
    )
    with RawClient(bootstrap) as client:
        join_streams(client, application, source)
        full = client.call(consumer, ConsumerGroupHeartbeatResponse, 1)
        leave_streams(client, application, "thread")
        empty = client.call(consumer, ConsumerGroupHeartbeatResponse, 1)
    assert [full.error_code, empty.error_code] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_a_task_moves_when_its_owner_has_let_go(
    bootstrap: str, application: str, source: str
) -> None:
    with RawClient(bootstrap) as client:
        first = join_streams(client, application, source)
        join(client, application, reading(source))
        kept: Any = None

        def is_revoked() -> bool:
            nonlocal kept
            kept = beat(client, application, member_id="thread", member_epoch=first.member_epoch)
            return kept.active_tasks is not None

        eventually(is_revoked, what="one task is taken away")
        assert [len(one.partitions) for one in kept.active_tasks] == [1]
        assert not join(client, application, reading(source)).active_tasks
        own = NO_TASKS | {"active_tasks": kept.active_tasks}
        done = beat(client, application, member_id="thread", member_epoch=kept.member_epoch, **own)
        assert done.member_epoch > first.member_epoch
        got: Any = join(client, application, reading(source))
        [mine], [theirs] = got.active_tasks, kept.active_tasks
        assert sorted(mine.partitions + theirs.partitions) == [0, 1]


def test_statuses_say_what_keeps_an_application_from_running(
    bootstrap: str, application: str, source: str, admin: AdminClient
) -> None:
    joined = Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=[source, f"{source}-more"],
                copartition_groups=[CopartitionGroup(source_topics=[0, 1])],
            )
        ],
    )
    with RawClient(bootstrap) as client:
        told = join(client, application, joined)
        assert statuses(told) == {MISSING_SOURCES}
        create_topic(admin, f"{source}-more", partitions=3)

        def are_compared() -> bool:
            return statuses(join(client, application, joined)) == {WRONG_PARTITIONS}

        eventually(are_compared, what="its topics differ in their partitions")
        told = join(client, application, joined, shutdown_application=True)
        assert SHUTDOWN in statuses(told)


def test_internal_topics_are_made_with_their_configs(
    bootstrap: str, application: str, source: str, admin: AdminClient
) -> None:
    topology = reading(source)
    topology.subtopologies[0].state_changelog_topics = [TopicInfo(name=f"{source}-changelog")]
    with RawClient(bootstrap) as client:

        def is_missing() -> bool:  # Kafka's groups hear of a new source a moment later
            return MISSING_INTERNAL in statuses(join(client, application, topology))

        eventually(is_missing, what="it is said to be missing")
        eventually(lambda: not statuses(join(client, application, topology)), what="it is made")
        made = admin.list_topics(timeout=10).topics[f"{source}-changelog"]
        assert len(made.partitions) == 2


def test_a_description_has_the_decided_partitions_in_the_order_of_names(
    bootstrap: str, application: str, source: str
) -> None:
    counts = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[TopicInfo(name=f"{source}-by-word")],
        state_changelog_topics=[TopicInfo(name=f"{source}-z"), TopicInfo(name=f"{source}-a")],
    )
    splits = Subtopology(
        subtopology_id="0",
        source_topics=[source],
        repartition_sink_topics=[f"{source}-by-word"],
    )
    topology = Topology(epoch=0, subtopologies=[counts, splits])
    with RawClient(bootstrap) as client:
        eventually(
            lambda: not statuses(join(client, application, topology)),
            what="its internal topics are made",
        )
        request = StreamsGroupDescribeRequest(group_ids=[application])
        [group] = client.call(request, StreamsGroupDescribeResponse, 0).groups
    shown: Any = group.topology
    first, second = shown.subtopologies
    assert (first.subtopology_id, second.subtopology_id) == ("0", "1")
    internal = (*second.repartition_source_topics, *second.state_changelog_topics)
    expected = [(f"{source}-{name}", 2) for name in ("by-word", "a", "z")]
    assert [(one.name, one.partitions) for one in internal] == expected
