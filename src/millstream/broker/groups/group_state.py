"""The phases of a group's life, and the limits that its operator sets."""

from dataclasses import dataclass
from enum import Enum


class GroupKind(Enum):
    """An id belongs to one kind of group at a time; the values are the names that ListGroups shows.

    A classic group becomes a consumer group, and back, as its members do, and without members a
    streams group. A share group stays one.
    """

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupState(Enum):
    """The values are the names that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    # Only consumer groups (KIP-848) and streams groups (KIP-1071) are in these two.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    # A streams group whose topics are not as its topology needs them.
    NOT_READY = "NotReady"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Kafka's defaults."""

    group_size_max: int = 2**31 - 1
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    # The join phase of an empty group waits, so that members started together meet in it.
    initial_rebalance_delay_ms: int = 3_000
    # A new member cannot heartbeat yet. If its client went away meanwhile, this ends it.
    new_member_join_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupLimits:
    """Of consumer groups (KIP-848), where the broker sets the pace. Kafka's defaults."""

    group_size_max: int = 2**31 - 1
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
