"""Every API that is offered, asked by nobody, by somebody else and by who may: no handler forgets.

The requests are those of `test_handlers.py`, which has one for each API. What an API needs is its
line in `security/requirements.py`; a need of an offered API that no case meets fails a test below.
For each need there is a caller who may do everything *but* that, so that a handler which asks for
the wrong thing is found as well as one which asks for nothing.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import millstream.broker.apis  # noqa: F401 - fills the table of handlers
from millstream.base.record import Record
from millstream.broker.access.connection_login import ConnectionLogin
from millstream.broker.handlers import HANDLERS
from millstream.broker.security.acls import (
    ALLOWED_ALONG,
    ANONYMOUS,
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    AclBinding,
    Acls,
    Operation,
    Pattern,
    ResourceType,
)
from millstream.broker.security.requirements import (
    REQUIREMENTS,
    Access,
    Denial,
    Need,
    requirement_of,
)
from millstream.broker.wire import RESPONSES, ApiKey, ErrorCode, Message, decode_response
from millstream.broker.wire.messages import alter_configs as alter
from millstream.broker.wire.messages import (
    delete_topics,
    describe_cluster,
    describe_configs,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    metadata,
    offset_fetch,
)
from millstream.broker.wire.messages import describe_topic_partitions as partitions
from millstream.log.record_batch import TRANSACTIONAL, encode_batch
from tests.support.served_node import PEER, ServedNode, newest, produce_request
from tests.support.simulated_disk import SimulatedDisk
from tests.support.socketless_client import SocketlessClient
from tests.unit.broker.group_steps import commit_request
from tests.unit.broker.test_handlers import (
    NORMAL,
    REFUSED,
    Make,
    World,
    add_request,
    create_request,
    errors_in,
    join_consumers,
    join_streams,
    listing,
    transactions_request,
)

ADMIN, ADA = "User:admin", "User:ada"
Pair = tuple[Operation, ResourceType]
ALL_PAIRS: set[Pair] = {(op, kind) for kind, ops in OPERATIONS_OF.items() for op in ops}
ALL_PAIRS |= {(Operation.DELETE, ResourceType.CLUSTER)}  # nobody documents it, Kafka asks for it


@dataclass(frozen=True)
class Case:
    """A request that has these needs, by the words of the table; `shows`: what a denial hides."""

    key: ApiKey
    make: Make
    whens: tuple[str, ...] = ("",)
    shows: Callable[[Any, World], bool] | None = None
    name: str = ""
    first_version: int = 0

    @property
    def needs(self) -> list[Need]:
        return [need for need in requirement_of(self.key).needs if need.when in self.whens]

    @property
    def versions(self) -> set[int]:
        """The oldest, the newest, and the newest with names where the newest has ids."""
        offered = HANDLERS[self.key].versions
        oldest = max(offered[0], self.first_version)
        names = max(oldest, newest_with_names(self.key))
        return {oldest, names, offered[-1]}

    def __str__(self) -> str:
        return f"{self.key.name.lower()}{'-' if self.name else ''}{self.name}"


def newest_with_names(key: ApiKey) -> int:
    return newest(HANDLERS[key].request_class())


def config_resource(kind: int, name: str, **more: Any) -> Any:
    return describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None, **more
    )


def describe_configs_of(kind: int, name: str) -> Make:
    return lambda _: describe_configs.DescribeConfigsRequest(
        resources=[config_resource(kind, name)]
    )


def set_config_of(kind: int, resource: str, name: str) -> Make:
    config = incremental_alter_configs.AlterableConfig(name=name, value="50000")
    wanted = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[wanted])
    return lambda _: request


def replace_configs_of(kind: int, resource: str, name: str) -> Make:
    config = alter.AlterableConfig(name=name, value="50000")
    wanted = alter.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[config]
    )
    return lambda _: alter.AlterConfigsRequest(resources=[wanted])


def of_all_topics(_: World) -> Message:
    return metadata.MetadataRequest(topics=None)


def of_a_new_topic(world: World) -> Message:
    wanted = metadata.MetadataRequestTopic(name=world.name)
    return metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)


def of_all_offsets(world: World) -> Message:
    world.served.ask(commit_request(1), 9)
    group = offset_fetch.OffsetFetchRequestGroup(group_id="readers", topics=None)
    return offset_fetch.OffsetFetchRequest(group_id="readers", topics=None, groups=[group])


def coordinator_of(key: str, key_type: int) -> Make:
    return lambda _: find_coordinator.FindCoordinatorRequest(
        key=key, key_type=key_type, coordinator_keys=[key]
    )


def in_transaction(world: World) -> Message:
    who = world.producer()
    world.served.ask(add_request(world, who, "orders"))
    request = produce_request(b"")
    request.topic_data[0].partition_data[0].records = encode_batch(
        [Record(value=b"a", timestamp_ms=world.served.now_ms)],
        attributes=TRANSACTIONAL,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=0,
    )
    request.transactional_id = world.name
    if world.version >= 13:
        request.topic_data[0].topic_id = world.topic_id
    return request


def with_transactional_id(world: World) -> Message:
    return init_producer_id.InitProducerIdRequest(
        transactional_id=world.name, transaction_timeout_ms=60_000
    )


def of_a_transaction(world: World) -> Message:
    world.served.ask(add_request(world, world.producer(), "orders"))
    return transactions_request(world.name)


def of_all_transactions(world: World) -> Message:
    return listing(".*") if world.producer() else listing("")


def by_id(world: World) -> Message:
    world.new_topic()
    topic_id = world.served.node.topics.named(world.name).id
    state = delete_topics.DeleteTopicState(name=None, topic_id=topic_id)
    return delete_topics.DeleteTopicsRequest(topics=[state])


def of_a_reading_group(world: World) -> Message:
    world.served.ask(join_consumers(world))
    return NORMAL[ApiKey.CONSUMER_GROUP_DESCRIBE](world)


def cluster_operations(_: World) -> Message:
    return describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)


def names_orders(answer: Message, world: World) -> bool:
    return "'orders'" in repr(answer) or repr(world.topic_id) in repr(answer)


OF_NAMED, OF_ALL = "of topics that it names", "of all topics"
# What the request of `test_handlers.py` needs beyond what every request of its API does.
WHENS: dict[ApiKey, tuple[str, ...]] = {
    ApiKey.FETCH: ("by a consumer",),
    ApiKey.METADATA: (OF_NAMED,),
    ApiKey.OFFSET_FETCH: ("", OF_NAMED),
    ApiKey.FIND_COORDINATOR: ("of a group",),
    ApiKey.INIT_PRODUCER_ID: ("without a transactional id",),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("version 3 and before",),
    ApiKey.DESCRIBE_CONFIGS: ("of topics", "of brokers, loggers and client metrics"),
    ApiKey.ALTER_CONFIGS: ("of topics",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("of topics",),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("", OF_NAMED),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (OF_NAMED,),
    ApiKey.SHARE_GROUP_HEARTBEAT: ("", OF_NAMED),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ("", OF_NAMED),
}
# What the answer to it shows, where a denial only hides.
SHOWS: dict[ApiKey, Callable[[Any, World], bool]] = {
    ApiKey.LIST_GROUPS: lambda answer, _: "'readers'" in repr(answer),
}
# Made by another case of the same API.
ELSEWHERE = {
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
}
SAYS_WHO_MAY_NOT = re.compile("not authorized|Unauthorized")  # ours, and Kafka's
BROKERS = "of brokers, loggers and client metrics"
MORE_CASES = [
    Case(
        ApiKey.PRODUCE,
        in_transaction,
        ("", "with transactional records"),
        name="in-a-transaction",
    ),
    Case(ApiKey.METADATA, of_all_topics, (OF_ALL,), names_orders, "all", 1),
    Case(ApiKey.METADATA, of_a_new_topic, (OF_NAMED, "it creates the topic"), name="new"),
    Case(ApiKey.OFFSET_FETCH, of_all_offsets, ("", OF_ALL), names_orders, "all", 2),
    Case(
        ApiKey.FIND_COORDINATOR,
        coordinator_of("a", 1),
        ("of a transactional id",),
        name="transaction",
        first_version=1,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        lambda world: create_request(world.name),
        ("", "the configuration in the answer"),
        lambda answer, _: answer.topics[0].num_partitions == 1,
        "config",
        5,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        by_id,
        ("the name of a topic given by its id", ""),
        lambda answer, world: answer.responses[0].name == world.name,
        "by-id",
        6,
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        with_transactional_id,
        ("with a transactional id",),
        name="transactional",
    ),
    *(
        Case(key, make(kind, name), (when,), name=f"{kind}")
        for kind, name, when in ((4, "1", BROKERS), (32, "readers", "of groups"))
        for key, make in ((ApiKey.DESCRIBE_CONFIGS, describe_configs_of),)
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        set_config_of(4, "1", "log.retention.ms"),
        (BROKERS,),
        name="broker",
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        set_config_of(32, "g", "consumer.session.timeout.ms"),
        ("of groups",),
        name="group",
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        replace_configs_of(4, "", "log.retention.ms"),
        (BROKERS,),
        name="broker",
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        replace_configs_of(32, "g", "consumer.session.timeout.ms"),
        ("of groups",),
        name="group",
    ),
    Case(
        ApiKey.DESCRIBE_CLUSTER,
        cluster_operations,
        ("authorized_operations",),
        lambda answer, _: answer.cluster_authorized_operations != 0,
    ),
    Case(ApiKey.DESCRIBE_TRANSACTIONS, of_a_transaction, ("",), names_orders),
    Case(
        ApiKey.LIST_TRANSACTIONS,
        of_all_transactions,
        ("",),
        lambda answer, world: repr(world.name) in repr(answer),
    ),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda world: join_consumers(
            world, subscribed_topic_names=None, subscribed_topic_regex="ord.*"
        ),
        ("", "of topics that its regular expression finds"),
        names_orders,
        "by-pattern",
        1,
    ),
    Case(ApiKey.ALTER_REPLICA_LOG_DIRS, REFUSED[ApiKey.ALTER_REPLICA_LOG_DIRS]),
    Case(ApiKey.ELECT_LEADERS, REFUSED[ApiKey.ELECT_LEADERS]),  # of all: version 0 cannot refuse
    Case(ApiKey.CONSUMER_GROUP_DESCRIBE, of_a_reading_group, ("",), name="that-reads"),
    Case(
        ApiKey.FIND_COORDINATOR,
        coordinator_of(f"g:{'A' * 22}:0", 2),
        ("of a share partition",),
        name="share",
        first_version=6,
    ),
    Case(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        lambda world: join_streams(world, f"{world.name}-changelog"),
        ("", OF_NAMED, "it creates internal topics"),
        lambda answer, _: bool(answer.status) and not SAYS_WHO_MAY_NOT.search(repr(answer)),
        "with-a-changelog",
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda _: partitions.DescribeTopicPartitionsRequest(topics=[]),
        (OF_ALL,),
        names_orders,
        "all",
    ),
]
CASES = [
    Case(key, make, WHENS.get(key, ("",)), SHOWS.get(key))
    for key, make in NORMAL.items()
    if key not in ELSEWHERE
] + MORE_CASES

# Needs that no request here can have, and why.
NOT_MET = {
    (ApiKey.FETCH, "by a replica"),  # there is one broker: a replica's fetch is a consumer's
    (ApiKey.INIT_PRODUCER_ID, "with two-phase commit"),  # version 6
    (ApiKey.ADD_PARTITIONS_TO_TXN, "version 4 and later"),
}


# --- who asks ---------------------------------------------------------------------------------


def meets(pair: Pair, need: Need) -> bool:
    operation, kind = pair
    given = {operation, *ALLOWED_ALONG.get(operation, ())}
    return any(grant.resource_type is kind and grant.operation in given for grant in need.any_of)


def rules(pairs: set[Pair]) -> Iterator[AclBinding]:
    for operation, kind in pairs:
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD
        yield AclBinding(Pattern(kind, name), ADA, operation)


def all_but(need: Need) -> set[Pair]:
    return {pair for pair in ALL_PAIRS if not meets(pair, need)}


def exactly(case: Case) -> set[Pair]:
    """The last grant of every need: the nearest one to the resource."""
    return {(grant.operation, grant.resource_type) for n in case.needs for grant in n.any_of[-1:]}


def give(served: ServedNode, pairs: set[Pair]) -> None:
    served.node.access.acls = Acls(rules(pairs), super_users=[ADMIN])
    served.node.access.epoch += 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    path: Path = tmp_path_factory.mktemp("guarded")
    served = ServedNode(path, disk=SimulatedDisk(path), is_authorizing=True, super_users=(ADMIN,))
    served.principal = ADMIN
    served.create("orders", 2)
    served.produce(b"a", b"b")
    served.ask(commit_request(1), 9)
    yield served
    served.close()


def ask_as(who: str, case: Case, world: World) -> Any:
    """The administrator prepares what the request is about, then `who` sends its bytes."""
    served = world.served
    request = case.make(world)
    before = state_of(served)
    client = SocketlessClient(served)
    client.connection.login = ConnectionLogin(served.node.logins, PEER.host, principal=who)
    client.send(request, world.version)
    while not (answers := client.answers()):
        served.turn()  # what waits for a thread of its own
        assert not client.transport.is_closed, "closed without an answer"
    has_changed = state_of(served) != before
    client.go()
    _, answer = decode_response(RESPONSES[case.key], world.version, answers[0])
    return answer, has_changed


def state_of(served: ServedNode) -> object:
    """All that a request could have changed: every log, the groups, the ids of transactions."""
    served.settle()
    node = served.node
    return (
        [
            (topic.name, dict(topic.overrides), p.log.start_offset, p.log.end_offset)
            for topic in node.topics
            for p in topic.partitions
        ],
        sorted((group.members.group_id, str(group.members.state)) for group in node.groups),
        sorted(one.transactional_id for one in node.transactions),
    )


def denied_codes(answer: Message) -> set[ErrorCode]:
    codes = {ErrorCode(code) for code in errors_in(answer)}
    return {code for code in codes if code.name.endswith("_AUTHORIZATION_FAILED")}


def world_of(served: ServedNode, case: Case, who: str, version: int) -> World:
    return World(served, f"{who}-{case}-{version}-{next(NUMBERS)}", version)


NUMBERS = iter(range(1_000_000))
EVERY_CASE = [
    pytest.param(case, version, id=f"{case}-v{version}")
    for case in CASES
    for version in sorted(case.versions)
]
EVERY_NEED = [
    pytest.param(case, need, version, id=f"{case}-v{version}-{number}")
    for case in CASES
    for version in sorted(case.versions)
    for number, need in enumerate(case.needs)
]
# The version cannot say that something was refused: it answers with nothing instead.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.LIST_CONFIG_RESOURCES, 0)}


@pytest.mark.parametrize(("case", "version"), EVERY_CASE)
def test_who_has_no_identity_gets_nothing(guarded: ServedNode, case: Case, version: int) -> None:
    give(guarded, ALL_PAIRS)  # to another
    answer, has_changed = ask_as(ANONYMOUS, case, world := world_of(guarded, case, "no", version))
    assert not has_changed
    check_refused(case, case.needs, answer, world)


@pytest.mark.parametrize(("case", "need", "version"), EVERY_NEED)
def test_who_may_do_everything_else_is_refused(
    guarded: ServedNode, case: Case, need: Need, version: int
) -> None:
    give(guarded, all_but(need))
    answer, has_changed = ask_as(ADA, case, world := world_of(guarded, case, "wrong", version))
    assert not has_changed or need.denial is Denial.HIDES_ITEM
    check_refused(case, [need], answer, world)


@pytest.mark.parametrize(("case", "version"), EVERY_CASE)
def test_who_may_do_just_this_is_not_refused(guarded: ServedNode, case: Case, version: int) -> None:
    give(guarded, exactly(case))
    answer, _ = ask_as(ADA, case, world := world_of(guarded, case, "right", version))
    assert denied_codes(answer) == set()
    assert case.shows is None or case.shows(answer, world)


def check_refused(case: Case, needs: list[Need], answer: Message, world: World) -> None:
    if requirement_of(case.key).access is not Access.BY_ACL:
        return
    refusing = [need for need in needs if need.denial is not Denial.HIDES_ITEM]
    if refusing and (case.key, world.version) not in SILENT:
        assert denied_codes(answer) & {need.error for need in refusing}
        assert len(denied_codes(answer)) == 1 or case.key is ApiKey.DESCRIBE_CONFIGS
    if case.shows is not None and any(need.denial is Denial.HIDES_ITEM for need in needs):
        assert not case.shows(answer, world)


def test_every_need_of_an_offered_api_is_in_the_matrix() -> None:
    met = {(case.key, when) for case in CASES for when in case.whens}
    missing = [
        (REQUIREMENTS[key].name, need.when)
        for key in HANDLERS
        for need in REQUIREMENTS[key].needs
        if (ApiKey(key), need.when) not in met | NOT_MET
    ]
    assert missing == [], "add a case"


def test_a_need_that_only_hides_says_what_it_hides() -> None:
    for case in CASES:
        if any(need.denial is Denial.HIDES_ITEM for need in case.needs):
            assert case.shows is not None, f"{case}: say how one sees it in the answer"
