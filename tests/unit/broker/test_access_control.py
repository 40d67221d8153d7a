"""Rules in a running node: they count at once, survive, hide what they should, and are audited."""

import logging
from typing import Any

import pytest

from millstream.broker.security.acls import (
    ANONYMOUS,
    OPERATIONS_OF,
    AclBinding,
    Caller,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.broker.topics import METADATA_TOPIC
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.broker.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.broker.wire.messages.describe_acls import DescribeAclsRequest
from millstream.broker.wire.messages.describe_cluster import DescribeClusterRequest
from millstream.broker.wire.messages.describe_groups import DescribeGroupsRequest
from millstream.broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from millstream.broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.served_node import PEER, Serve, ServedNode, produce_request
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.test_handlers import (
    ANY_ACL,
    World,
    join_sharing,
    quota_request,
    share_fetch_request,
    user_request,
)

ADMIN, ADA, EVE = "User:admin", "User:ada", "User:eve"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BY_NAME, BY_ID = 12, 13  # of Fetch


@pytest.fixture
def guarded(serve: Serve) -> ServedNode:
    served = serve(is_authorizing=True, super_users=(ADMIN,))
    served.principal = ADMIN
    served.create("orders")
    served.produce(b"a")
    return served


def create_acl(
    served: ServedNode,
    who: str,
    operation: Operation,
    name: str,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> int:
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=who,
        host=host,
        operation=operation,
        permission_type=permission,
    )
    answer = ask_as(ADMIN, served, CreateAclsRequest(creations=[creation]))
    return int(answer.results[0].error_code)


def delete_acls_of(served: ServedNode, who: str) -> Any:
    wanted = DeleteAclsFilter(**ANY_ACL | {"principal_filter": who})
    return ask_as(ADMIN, served, DeleteAclsRequest(filters=[wanted])).filter_results[0]


def ask_as(who: str, served: ServedNode, request: Any, version: int | None = None) -> Any:
    before, served.principal = served.principal, who
    try:
        return served.ask(request, version)
    finally:
        served.principal = before


def produce_code(served: ServedNode, who: str, topic: str = "orders") -> int:
    answer = ask_as(who, served, produce_request(b"x", topic=topic))
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch_request(topic: str, *, offset: int = 0, wait_ms: int = 0, **by: Any) -> FetchRequest:
    place = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic=topic, partitions=[place], **by)
    return FetchRequest(min_bytes=1, max_bytes=1 << 20, max_wait_ms=wait_ms, topics=[wanted])


# --- rules ------------------------------------------------------------------------------------


def test_a_rule_counts_when_its_creation_is_answered(guarded: ServedNode) -> None:
    assert produce_code(guarded, ADA) == DENIED
    assert create_acl(guarded, ADA, Operation.WRITE, "orders") == 0
    assert produce_code(guarded, ADA) == 0
    assert produce_code(guarded, EVE) == DENIED


def test_a_rule_that_is_gone_counts_no_more_for_who_has_used_it(guarded: ServedNode) -> None:
    """What was allowed a moment ago is remembered, but not longer than the rule."""
    create_acl(guarded, ADA, Operation.WRITE, "orders")
    assert produce_code(guarded, ADA) == 0
    assert len(delete_acls_of(guarded, ADA).matching_acls) == 1
    assert produce_code(guarded, ADA) == DENIED


def test_a_denial_ends_what_was_allowed(guarded: ServedNode) -> None:
    create_acl(guarded, ADA, Operation.WRITE, "ord", pattern=PatternType.PREFIXED)
    assert produce_code(guarded, ADA) == 0
    create_acl(guarded, "User:*", Operation.WRITE, "orders", permission=Permission.DENY)
    assert produce_code(guarded, ADA) == DENIED
    assert produce_code(guarded, ADMIN) == 0


def test_a_rule_for_an_address_is_for_that_address(guarded: ServedNode) -> None:
    create_acl(guarded, ADA, Operation.WRITE, "orders", host="203.0.113.5")
    assert produce_code(guarded, ADA) == DENIED
    create_acl(guarded, ADA, Operation.WRITE, "orders", host=PEER.host)
    assert produce_code(guarded, ADA) == 0


def test_a_long_poll_ends_with_the_rule_that_allowed_it(guarded: ServedNode) -> None:
    create_acl(guarded, ADA, Operation.READ, "orders")
    guarded.principal = ADA
    waiting = guarded.ask_soon(fetch_request("orders", offset=1, wait_ms=60_000), BY_NAME)
    guarded.principal = ADMIN
    assert not waiting.done()
    delete_acls_of(guarded, ADA)
    guarded.produce(b"secret")
    guarded.settle()
    answer: Any = waiting.result()
    [part] = answer.responses[0].partitions
    assert (part.error_code, bytes(part.records)) == (DENIED, b"")


def test_a_topic_in_a_fetch_session_is_denied_with_the_rule_that_allowed_it(
    guarded: ServedNode,
) -> None:
    """Its partitions are kept in the session, the permit for them is not."""
    create_acl(guarded, ADA, Operation.READ, "orders")
    opening = fetch_request("orders")
    opening.session_epoch = 0
    session_id = ask_as(ADA, guarded, opening, BY_NAME).session_id
    assert session_id > 0
    delete_acls_of(guarded, ADA)
    guarded.produce(b"secret")
    for epoch in (1, 2):
        next_request = FetchRequest(session_id=session_id, session_epoch=epoch)
        [topic] = ask_as(ADA, guarded, next_request, BY_NAME).responses
        [part] = topic.partitions
        assert (part.error_code, bytes(part.records)) == (DENIED, b"")


def test_so_does_the_long_poll_of_a_queue(guarded: ServedNode) -> None:
    world = World(guarded, "workers", 2)
    create_acl(guarded, ADA, Operation.READ, "orders")
    create_acl(guarded, ADA, Operation.READ, "workers", kind=ResourceType.GROUP)
    guarded.ask(join_sharing(world))
    request = share_fetch_request(world, world.topic_id, max_wait_ms=60_000)
    guarded.principal = ADA
    waiting = guarded.ask_soon(request, 2)
    guarded.principal = ADMIN
    assert not waiting.done()
    delete_acls_of(guarded, ADA)
    guarded.produce(b"secret")
    guarded.settle()
    answer: Any = waiting.result()
    [part] = answer.responses[0].partitions
    assert (part.error_code, bytes(part.records)) == (DENIED, b"")


def test_rules_are_there_after_a_crash(serve: Serve) -> None:
    served = serve(is_authorizing=True, super_users=(ADMIN,))
    served.principal = ADMIN
    create_acl(served, ADA, Operation.READ, "orders")
    create_acl(served, EVE, Operation.READ, "orders")
    delete_acls_of(served, EVE)
    served.crash()
    again = serve(is_authorizing=True, super_users=(ADMIN,))
    found = ask_as(ADMIN, again, DescribeAclsRequest(**ANY_ACL)).resources
    assert [(one.resource_name, one.acls[0].principal) for one in found] == [("orders", ADA)]
    assert len(again.node.access.acls) == 1


def test_a_rule_that_cannot_be_stored_does_not_count(
    guarded: ServedNode, disk: SimulatedDisk
) -> None:
    disk.fail_syncs(lambda path: True)
    assert create_acl(guarded, ADA, Operation.WRITE, "orders") == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(guarded.node.access.acls) == 0
    disk.heal()
    guarded.crash()


def test_without_authorization_rules_are_kept_and_nobody_is_asked(serve: Serve) -> None:
    served = serve()
    served.create("orders")
    create_acl(served, ADA, Operation.WRITE, "orders", permission=Permission.DENY)
    assert produce_code(served, ADA) == 0
    assert len(served.node.access.acls) == 1


# --- what may be known ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 9, 3])
def test_who_may_not_know_a_topic_cannot_tell_whether_it_exists(
    guarded: ServedNode, version: int
) -> None:
    def described(name: str) -> Any:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        [topic] = ask_as(EVE, guarded, wanted, version).topics
        return topic.error_code, topic.partitions, topic.topic_id

    assert described("orders") == described("no-such-topic")
    assert described("orders")[0] == DENIED
    assert "no-such-topic" not in guarded.node.topics


def test_a_topic_by_its_id_is_denied_without_its_name(guarded: ServedNode) -> None:
    topic_id = guarded.node.topics.named("orders").id
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    [topic] = ask_as(EVE, guarded, wanted, 12).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (DENIED, None, topic_id)

    request = produce_request(b"x")
    request.topic_data[0].topic_id = topic_id
    answer = ask_as(EVE, guarded, request, 13)
    assert answer.responses[0].partition_responses[0].error_code == DENIED
    assert "orders" not in repr(answer)

    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    assert "orders" not in repr(ask_as(EVE, guarded, doomed, 6))


PRIVATE = MetadataRequest(topics=[MetadataRequestTopic(name=METADATA_TOPIC)])


def private_requests() -> list[tuple[Any, int]]:
    offsets = ListOffsetsPartition(partition_index=0, timestamp=-1)
    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    return [
        (fetch_request(METADATA_TOPIC), BY_NAME),
        (
            ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=METADATA_TOPIC, partitions=[offsets])]
            ),
            7,
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic=METADATA_TOPIC, partitions=[epoch])]
            ),
            4,
        ),
        (
            DescribeProducersRequest(
                topics=[TopicRequest(name=METADATA_TOPIC, partition_indexes=[0])]
            ),
            0,
        ),
    ]


@pytest.mark.parametrize("is_authorizing", [True, False])
@pytest.mark.parametrize(("request_", "version"), private_requests())
def test_nobody_is_served_the_topic_that_holds_the_credentials(
    serve: Serve, request_: Any, version: int, is_authorizing: bool
) -> None:
    served = serve(is_authorizing=is_authorizing, super_users=(ADMIN,))
    answer = ask_as(ADMIN, served, request_, version)
    assert f"error_code={int(DENIED)}" in repr(answer)


def test_not_even_by_its_id(guarded: ServedNode) -> None:
    topic_id = guarded.node.topics.named(METADATA_TOPIC).id
    answer = guarded.ask(fetch_request("", topic_id=topic_id), BY_ID)
    [part] = answer.responses[0].partitions
    assert (part.error_code, bytes(part.records)) == (DENIED, b"")


def test_it_is_no_secret_that_it_exists(guarded: ServedNode) -> None:
    assert guarded.ask(PRIVATE, 12).topics[0].error_code == 0


# --- authorized_operations --------------------------------------------------------------------


def bits(operations: Any) -> int:
    return sum(1 << operation for operation in operations)


def operations_told(served: ServedNode) -> tuple[int, int, int]:
    topics = MetadataRequest(
        topics=[MetadataRequestTopic(name="orders")], include_topic_authorized_operations=True
    )
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    groups = DescribeGroupsRequest(groups=["readers"], include_authorized_operations=True)
    return (
        served.ask(topics, 12).topics[0].topic_authorized_operations,
        served.ask(cluster).cluster_authorized_operations,
        served.ask(groups, 5).groups[0].authorized_operations,
    )


def test_without_authorization_everything_is_authorized(served: ServedNode) -> None:
    served.create("orders")
    assert operations_told(served) == (
        bits(OPERATIONS_OF[ResourceType.TOPIC]),
        bits(OPERATIONS_OF[ResourceType.CLUSTER]),
        bits(OPERATIONS_OF[ResourceType.GROUP]),
    )


def test_with_it_what_the_rules_allow_is(guarded: ServedNode) -> None:
    create_acl(guarded, ADA, Operation.READ, "orders")
    create_acl(guarded, ADA, Operation.DELETE, "readers", kind=ResourceType.GROUP)
    guarded.principal = ADA
    assert operations_told(guarded) == (
        bits({Operation.READ, Operation.DESCRIBE}),
        0,
        bits({Operation.DELETE, Operation.DESCRIBE}),
    )


def test_what_is_not_asked_for_is_not_told(served: ServedNode) -> None:
    served.create("orders")
    answer = served.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
    assert answer.topics[0].topic_authorized_operations == -(2**31)


# --- the audit --------------------------------------------------------------------------------


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "millstream.audit"]


def test_a_denial_has_a_line_in_the_audit_and_the_next_ones_are_counted(
    guarded: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        produce_code(guarded, EVE)
    [line] = audit_lines(caplog)
    assert line == (
        f"denied: 'User:eve' from {PEER.host} WRITE on TOPIC 'orders' by Produce: "
        "the resource has no rule"
    )
    guarded.advance(61)
    produce_code(guarded, EVE)
    assert audit_lines(caplog)[1].endswith("; 2 more like it since")
    assert guarded.node.access.denials.count == 4


def test_a_name_cannot_forge_a_line(guarded: ServedNode, caplog: pytest.LogCaptureFixture) -> None:
    produce_code(guarded, EVE, topic="x\ndenied: 'User:admin' from here")
    [line] = audit_lines(caplog)
    assert "\n" not in line


def test_who_changes_rules_is_in_the_audit(
    guarded: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="millstream.audit")
    create_acl(guarded, ADA, Operation.READ, "orders")
    delete_acls_of(guarded, ADA)
    added, removed = audit_lines(caplog)
    rule = AclBinding(Pattern(ResourceType.TOPIC, "orders"), ADA, Operation.READ)
    assert added == f"{ADMIN!r} from {PEER.host}: ACL added: {str(rule)!r}"
    assert removed == f"{ADMIN!r} from {PEER.host}: ACL removed: {str(rule)!r}"


def test_who_changes_users_and_quotas_is_in_the_audit(
    guarded: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="millstream.audit")
    guarded.ask(user_request("bob\n"))
    guarded.ask(user_request(""))  # refused
    guarded.ask(quota_request("bob"))
    assert audit_lines(caplog) == [
        f"{ADMIN!r} from {PEER.host}: credentials changed: 'bob\\n'",
        f"{ADMIN!r} from {PEER.host}: quotas changed: {{'user': 'bob'}}",
    ]


def test_looking_at_a_private_topic_is_audited(
    guarded: ServedNode, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.ask(fetch_request(METADATA_TOPIC), BY_NAME)
    [line] = audit_lines(caplog)
    assert line.endswith("by Fetch: nobody is served this topic")


def test_a_broker_that_nobody_can_use_says_so(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    serve(is_authorizing=True)
    assert "nobody may do anything" in caplog.text


# --- limits -----------------------------------------------------------------------------------


def test_names_and_callers_do_not_fill_the_memory(
    guarded: ServedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.broker.access.access_control.PERMITS_MAX", 3)
    monkeypatch.setattr("millstream.broker.access.permit.PASSED_MAX", 3)
    for number in range(10):
        produce_code(guarded, f"User:{number}")
        produce_code(guarded, ADMIN, topic=f"t{number}")
    access = guarded.node.access
    assert len(access._permits) <= 3
    caller = Caller(ADMIN, PEER.host)
    permit = next(each for each in access._permits.values() if each.caller == caller)
    assert len(permit.topics._passed) <= 3
    assert produce_code(guarded, ADMIN) == 0
    assert produce_code(guarded, ANONYMOUS) == DENIED


def test_a_long_name_is_not_remembered(guarded: ServedNode) -> None:
    long = "x" * 30_000
    produce_code(guarded, ADMIN, topic=long)
    produce_code(guarded, ANONYMOUS, topic=long)
    access = guarded.node.access
    passed = [name for each in access._permits.values() for name in each.topics._passed]
    denied = [resource.name for _, resource in access.denials._watched]
    assert max(map(len, passed + denied)) <= 300
