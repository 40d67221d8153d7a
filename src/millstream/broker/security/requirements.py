"""What each API of Kafka needs: one table, from the key to operations on resources.

Read off Kafka's own request handlers, for every API that Kafka 4.3 has, offered here or not, so
that no API can be added without saying who may call it: a dispatcher refuses a key without a line
(`requirement_of`), and one test goes over all lines. `permit.py` asks for what a line says, whole
requests first, then item by item; the table decides nothing (`acls.py` does).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from millstream.base.errors import Rejected
from millstream.broker.security.acls import Operation, ResourceType
from millstream.broker.wire.error_codes import ErrorCode


class Access(Enum):
    ANYONE = "before a login: how a connection begins"
    AUTHENTICATED = "whoever is logged in"
    BY_ACL = "as the needs say"


class Denial(Enum):
    """What becomes of a request when a need is not met."""

    REFUSES_REQUEST = "the whole request is answered with the error"
    REFUSES_ITEM = "this topic, group or resource has the error, the others are served"
    HIDES_ITEM = "the answer is as if it did not exist"


@dataclass(frozen=True, slots=True)
class Grant:
    operation: Operation
    resource_type: ResourceType
    on_any: bool = False  # on some resource of the type, whichever (KIP-679)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One of the grants is enough. `when` says which requests have this need; empty: all."""

    any_of: tuple[Grant, ...]
    denial: Denial
    error: ErrorCode
    when: str = ""

    def is_about(self, resource_type: ResourceType) -> bool:
        return any(each.resource_type is resource_type and not each.on_any for each in self.any_of)


@dataclass(frozen=True, slots=True)
class Requirement:
    """All needs must be met, in this order."""

    name: str
    access: Access
    needs: tuple[Need, ...] = ()

    @property
    def of_request(self) -> tuple[Need, ...]:
        """What is asked before anything else is done."""
        return tuple(need for need in self.needs if need.denial is Denial.REFUSES_REQUEST)

    def to_use(self, resource_type: ResourceType) -> Need | None:
        """What a resource that a request names needs."""
        used = (need for need in self.needs if need.denial is not Denial.HIDES_ITEM)
        return next((n for n in used if n.is_about(resource_type) and not _creates(n)), None)

    def to_see(self, resource_type: ResourceType) -> Need | None:
        """What a resource needs to be in a list; whoever may see the cluster sees all of it."""
        hidden = (need for need in self.needs if need.denial is Denial.HIDES_ITEM)
        for need in hidden:
            if need.is_about(resource_type) and need.any_of[-1].operation is Operation.DESCRIBE:
                return need
        of_cluster = (need for need in self.of_request if need.is_about(ResourceType.CLUSTER))
        return self.to_use(resource_type) or next(of_cluster, None)

    @property
    def to_create(self) -> Need | None:
        """What the name of a new topic needs."""
        return next((need for need in self.needs if _creates(need)), None)


def _creates(need: Need) -> bool:
    return need.any_of[-1].operation is Operation.CREATE


# Credentials are records too: of these topics nobody is served a record or an offset, whatever the
# rules say and whoever asks. Kafka's own metadata topic cannot be fetched by clients either.
PRIVATE_TOPICS = frozenset({"__millstream_metadata"})
# The APIs that may speak of a private topic: they say that it is there (Metadata, DescribeConfigs,
# DescribeTopicPartitions, and what lists whole clusters), or refuse to change it as they do with
# every internal topic. All others know nothing of it.
APIS_OF_PRIVATE_TOPICS = frozenset({0, 3, 19, 20, 21, 24, 32, 33, 35, 37, 44, 74, 75})


class NoRequirement(Rejected):
    def __init__(self, *, api_key: int) -> None:
        super().__init__(f"API {api_key} has no line in the table of what APIs need: it is refused")
        self.api_key = api_key


ERROR_OF: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def _grant(text: str) -> Grant:
    """`READ TOPIC`, or `WRITE TOPIC ?` for any topic."""
    operation, resource_type, *rest = text.split()
    return Grant(Operation[operation], ResourceType[resource_type], on_any=rest == ["?"])


def _need(denial: Denial, grants: str, when: str, error: ErrorCode | None) -> Need:
    """The last grant is what the error speaks of."""
    any_of = tuple(_grant(each) for each in grants.split(" or "))
    return Need(
        any_of=any_of,
        denial=denial,
        error=ERROR_OF[any_of[-1].resource_type] if error is None else error,
        when=when,
    )


def _all(grants: str, when: str = "", error: ErrorCode | None = None) -> Need:
    return _need(Denial.REFUSES_REQUEST, grants, when, error)


def _each(grants: str, when: str = "", error: ErrorCode | None = None) -> Need:
    return _need(Denial.REFUSES_ITEM, grants, when, error)


def _hide(grants: str, when: str = "") -> Need:
    return _need(Denial.HIDES_ITEM, grants, when, None)


def _by_acl(name: str, *needs: Need) -> Requirement:
    return Requirement(name, Access.BY_ACL, needs)


def _brokers_only(name: str) -> Requirement:
    """Brokers and controllers say this to one another."""
    return _by_acl(name, _all("CLUSTER_ACTION CLUSTER"))


def _administration(name: str) -> Requirement:
    return _by_acl(name, _all("ALTER CLUSTER"))


def _group_member(name: str) -> Requirement:
    return _by_acl(name, _all("READ GROUP"))


def _configs(name: str, operation: str) -> Requirement:
    return _by_acl(
        name,
        _each(f"{operation} TOPIC", when="of topics"),
        _each(f"{operation} GROUP", when="of groups"),
        _each(f"{operation} CLUSTER", when="of brokers, loggers and client metrics"),
    )


REQUIREMENTS: Mapping[int, Requirement] = {
    0: _by_acl(
        "Produce",
        _all("WRITE TRANSACTIONAL_ID", when="with transactional records"),
        _each("WRITE TOPIC"),
    ),
    1: _by_acl(
        "Fetch",
        _each("READ TOPIC", when="by a consumer"),
        _each(
            "CLUSTER_ACTION CLUSTER",
            when="by a replica",
            error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
    ),
    2: _by_acl("ListOffsets", _each("DESCRIBE TOPIC")),
    3: _by_acl(
        "Metadata",
        _each("DESCRIBE TOPIC", when="of topics that it names"),
        _hide("DESCRIBE TOPIC", when="of all topics"),
        _each("CREATE CLUSTER or CREATE TOPIC", when="it creates the topic"),
    ),
    8: _by_acl("OffsetCommit", _all("READ GROUP"), _each("READ TOPIC")),
    9: _by_acl(
        "OffsetFetch",
        _each("DESCRIBE GROUP"),
        _each("DESCRIBE TOPIC", when="of topics that it names"),
        _hide("DESCRIBE TOPIC", when="of all topics"),
    ),
    10: _by_acl(
        "FindCoordinator",
        _each("DESCRIBE GROUP", when="of a group"),
        _each("DESCRIBE TRANSACTIONAL_ID", when="of a transactional id"),
        _all("CLUSTER_ACTION CLUSTER", when="of a share partition"),
    ),
    11: _group_member("JoinGroup"),
    12: _group_member("Heartbeat"),
    13: _group_member("LeaveGroup"),
    14: _group_member("SyncGroup"),
    15: _by_acl("DescribeGroups", _each("DESCRIBE GROUP")),
    16: _by_acl("ListGroups", _hide("DESCRIBE CLUSTER or DESCRIBE GROUP")),
    17: Requirement("SaslHandshake", Access.ANYONE),
    18: Requirement("ApiVersions", Access.ANYONE),
    19: _by_acl(
        "CreateTopics",
        _each("CREATE CLUSTER or CREATE TOPIC"),
        _hide("DESCRIBE_CONFIGS TOPIC", when="the configuration in the answer"),
    ),
    20: _by_acl(
        "DeleteTopics",
        _hide("DELETE CLUSTER or DESCRIBE TOPIC", when="the name of a topic given by its id"),
        _each("DELETE CLUSTER or DELETE TOPIC"),
    ),
    21: _by_acl("DeleteRecords", _each("DELETE TOPIC")),
    22: _by_acl(
        "InitProducerId",
        _all("WRITE TRANSACTIONAL_ID", when="with a transactional id"),
        _all("TWO_PHASE_COMMIT TRANSACTIONAL_ID", when="with two-phase commit"),
        _all(
            "IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC ?",
            when="without a transactional id",
            error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ),
    23: _by_acl("OffsetForLeaderEpoch", _each("CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC")),
    24: _by_acl(
        "AddPartitionsToTxn",
        _all("WRITE TRANSACTIONAL_ID", when="version 3 and before"),
        _each("WRITE TOPIC", when="version 3 and before"),
        _all("CLUSTER_ACTION CLUSTER", when="version 4 and later"),
    ),
    25: _by_acl("AddOffsetsToTxn", _all("WRITE TRANSACTIONAL_ID"), _all("READ GROUP")),
    26: _by_acl("EndTxn", _all("WRITE TRANSACTIONAL_ID")),
    27: _by_acl("WriteTxnMarkers", _all("ALTER CLUSTER or CLUSTER_ACTION CLUSTER")),
    28: _by_acl(
        "TxnOffsetCommit",
        _all("WRITE TRANSACTIONAL_ID"),
        _all("READ GROUP"),
        _each("READ TOPIC"),
    ),
    29: _by_acl("DescribeAcls", _all("DESCRIBE CLUSTER")),
    30: _administration("CreateAcls"),
    31: _administration("DeleteAcls"),
    32: _configs("DescribeConfigs", "DESCRIBE_CONFIGS"),
    33: _configs("AlterConfigs", "ALTER_CONFIGS"),
    34: _administration("AlterReplicaLogDirs"),
    35: _by_acl("DescribeLogDirs", _all("DESCRIBE CLUSTER")),
    36: Requirement("SaslAuthenticate", Access.ANYONE),
    37: _by_acl("CreatePartitions", _each("ALTER TOPIC")),
    38: _by_acl("CreateDelegationToken", _all("CREATE_TOKENS USER", when="for another user")),
    39: Requirement("RenewDelegationToken", Access.AUTHENTICATED),
    40: Requirement("ExpireDelegationToken", Access.AUTHENTICATED),
    41: _by_acl(
        "DescribeDelegationToken",
        _hide("DESCRIBE_TOKENS USER or DESCRIBE DELEGATION_TOKEN", when="of another user"),
    ),
    42: _by_acl("DeleteGroups", _each("DELETE GROUP")),
    43: _administration("ElectLeaders"),
    44: _configs("IncrementalAlterConfigs", "ALTER_CONFIGS"),
    45: _administration("AlterPartitionReassignments"),
    46: _by_acl("ListPartitionReassignments", _all("DESCRIBE CLUSTER")),
    47: _by_acl("OffsetDelete", _all("DELETE GROUP"), _each("READ TOPIC")),
    48: _by_acl("DescribeClientQuotas", _all("DESCRIBE_CONFIGS CLUSTER")),
    49: _by_acl("AlterClientQuotas", _all("ALTER_CONFIGS CLUSTER")),
    50: _by_acl("DescribeUserScramCredentials", _all("DESCRIBE CLUSTER")),
    51: _administration("AlterUserScramCredentials"),
    52: _brokers_only("Vote"),
    53: _brokers_only("BeginQuorumEpoch"),
    54: _brokers_only("EndQuorumEpoch"),
    55: _by_acl("DescribeQuorum", _all("DESCRIBE CLUSTER")),
    56: _brokers_only("AlterPartition"),
    57: _administration("UpdateFeatures"),
    58: _brokers_only("Envelope"),
    59: _brokers_only("FetchSnapshot"),
    60: _by_acl("DescribeCluster", _hide("DESCRIBE CLUSTER", when="authorized_operations")),
    61: _by_acl("DescribeProducers", _each("READ TOPIC")),
    62: _brokers_only("BrokerRegistration"),
    63: _brokers_only("BrokerHeartbeat"),
    64: _administration("UnregisterBroker"),
    65: _by_acl(
        "DescribeTransactions", _each("DESCRIBE TRANSACTIONAL_ID"), _hide("DESCRIBE TOPIC")
    ),
    66: _by_acl("ListTransactions", _hide("DESCRIBE TRANSACTIONAL_ID")),
    67: _brokers_only("AllocateProducerIds"),
    68: _by_acl(
        "ConsumerGroupHeartbeat",
        _all("READ GROUP"),
        _all("DESCRIBE TOPIC", when="of topics that it names"),
        _hide("DESCRIBE TOPIC", when="of topics that its regular expression finds"),
    ),
    69: _by_acl("ConsumerGroupDescribe", _each("DESCRIBE GROUP"), _each("DESCRIBE TOPIC")),
    70: _brokers_only("ControllerRegistration"),
    71: Requirement("GetTelemetrySubscriptions", Access.AUTHENTICATED),
    72: Requirement("PushTelemetry", Access.AUTHENTICATED),
    73: _brokers_only("AssignReplicasToDirs"),
    74: _by_acl("ListConfigResources", _all("DESCRIBE_CONFIGS CLUSTER")),
    75: _by_acl(
        "DescribeTopicPartitions",
        _each("DESCRIBE TOPIC", when="of topics that it names"),
        _hide("DESCRIBE TOPIC", when="of all topics"),
    ),
    76: _by_acl(
        "ShareGroupHeartbeat",
        _all("READ GROUP"),
        _all("DESCRIBE TOPIC", when="of topics that it names"),
    ),
    77: _by_acl("ShareGroupDescribe", _each("DESCRIBE GROUP"), _each("DESCRIBE TOPIC")),
    78: _by_acl("ShareFetch", _all("READ GROUP"), _each("READ TOPIC")),
    79: _by_acl("ShareAcknowledge", _all("READ GROUP"), _each("READ TOPIC")),
    80: _administration("AddRaftVoter"),
    81: _administration("RemoveRaftVoter"),
    82: _brokers_only("UpdateRaftVoter"),
    83: _brokers_only("InitializeShareGroupState"),
    84: _brokers_only("ReadShareGroupState"),
    85: _brokers_only("WriteShareGroupState"),
    86: _brokers_only("DeleteShareGroupState"),
    87: _brokers_only("ReadShareGroupStateSummary"),
    88: _by_acl(
        "StreamsGroupHeartbeat",
        _all("READ GROUP"),
        _all("DESCRIBE TOPIC", when="of topics that it names"),
        _hide("CREATE CLUSTER or CREATE TOPIC", when="it creates internal topics"),
    ),
    89: _by_acl("StreamsGroupDescribe", _each("DESCRIBE GROUP"), _each("DESCRIBE TOPIC")),
    90: _by_acl("DescribeShareGroupOffsets", _each("DESCRIBE GROUP"), _each("DESCRIBE TOPIC")),
    91: _by_acl("AlterShareGroupOffsets", _all("READ GROUP"), _each("READ TOPIC")),
    92: _by_acl("DeleteShareGroupOffsets", _all("DELETE GROUP"), _each("READ TOPIC")),
}


def requirement_of(api_key: int) -> Requirement:
    """What an API needs; one that is not in the table is refused."""
    requirement = REQUIREMENTS.get(api_key)
    if requirement is None:
        raise NoRequirement(api_key=api_key)
    return requirement
