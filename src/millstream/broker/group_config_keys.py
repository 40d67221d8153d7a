"""What can be set for single groups, in Kafka's words: which names there are, and what they allow.

Pure, as `topic_config.py` is for topics. Where Kafka lets its operator move a bound, ours is as
wide as Kafka's can be made. The dead-letter topic is KIP-1191's, which Kafka 4.3 does not have.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.broker.share.share_reset import read_share_reset
from millstream.broker.topic_config import INT32_MAX, NO_EFFECT, ConfigType
from millstream.broker.topics import InvalidTopicName, check_topic_name

WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")

CONSUMER_SESSION_TIMEOUT = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT = "share.delivery.count.limit"
SHARE_LOCKS_MAX = "share.partition.max.record.locks"
SHARE_RESET = "share.auto.offset.reset"
SHARE_ISOLATION = "share.isolation.level"
SHARE_RENEWAL = "share.renew.acknowledge.enable"
STREAMS_SESSION_TIMEOUT = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
STREAMS_STANDBYS = "streams.num.standby.replicas"
STREAMS_INITIAL_DELAY = "streams.initial.rebalance.delay.ms"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
INTERNAL_PREFIX = "__"

Check = Callable[[str], str | None]  # what is wrong with a value, or None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigKey:
    """One configuration name. `broker_name` is what sets the default for all groups, if any."""

    type: ConfigType
    default: str
    check: Check
    help: str
    broker_name: str | None = None

    @property
    def is_without_effect(self) -> bool:
        return self.help == NO_EFFECT


def _number(low: int, high: int, unit: str = "") -> Check:
    def check(value: str) -> str | None:
        if WHOLE_NUMBER.fullmatch(value) and low <= int(value) <= high:
            return None
        return f"must be a number{unit}, {low} to {high}"

    return check


def _one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"must be {' or '.join(allowed)}"


def _reset(value: str) -> str | None:
    if read_share_reset(value) is not None:
        return None
    return "must be earliest, latest or by_duration:P1DT2H (any ISO 8601 duration)"


def _topic_or_none(value: str) -> str | None:
    if value.startswith(INTERNAL_PREFIX):
        return f"a topic whose name starts with {INTERNAL_PREFIX} is the broker's own"
    try:
        check_topic_name(value or "none")
    except InvalidTopicName as error:
        return error.reason
    return None


def _ms(default: int, low: int, high: int, broker_name: str, help_: str) -> GroupConfigKey:
    check = _number(low, high, " of milliseconds")
    return GroupConfigKey(
        type=ConfigType.INT,
        default=str(default),
        check=check,
        help=help_,
        broker_name=broker_name,
    )


def _count(default: int, low: int, high: int, broker_name: str, help_: str) -> GroupConfigKey:
    return GroupConfigKey(
        type=ConfigType.INT,
        default=str(default),
        check=_number(low, high),
        help=help_,
        broker_name=broker_name,
    )


def _assignment_interval(kind: str) -> tuple[str, GroupConfigKey]:
    """How long Kafka waits with an assignment; here it is made at once after each change."""
    name = f"{kind}.assignment.interval.ms"
    return name, _ms(1_000, 0, INT32_MAX, f"group.{name}", NO_EFFECT)


GROUP_CONFIGS: Mapping[str, GroupConfigKey] = {
    CONSUMER_SESSION_TIMEOUT: _ms(
        45_000,
        1_000,
        1_800_000,
        "group.consumer.session.timeout.ms",
        "after which silence a member of a consumer group is out",
    ),
    CONSUMER_HEARTBEAT_INTERVAL: _ms(
        5_000,
        100,
        60_000,
        "group.consumer.heartbeat.interval.ms",
        "how often members of a consumer group are told to heartbeat",
    ),
    SHARE_SESSION_TIMEOUT: _ms(
        45_000,
        1_000,
        1_800_000,
        "group.share.session.timeout.ms",
        "after which silence a member of a share group is out",
    ),
    SHARE_HEARTBEAT_INTERVAL: _ms(
        5_000,
        100,
        60_000,
        "group.share.heartbeat.interval.ms",
        "how often members of a share group are told to heartbeat",
    ),
    SHARE_LOCK_DURATION: _ms(
        30_000,
        1_000,
        3_600_000,
        "group.share.record.lock.duration.ms",
        "how long a member may hold a record before others get it",
    ),
    SHARE_DELIVERY_LIMIT: _count(
        5,
        2,
        25,
        "group.share.delivery.count.limit",
        "how often a record is handed out before the group gives up on it",
    ),
    SHARE_LOCKS_MAX: _count(
        2_000,
        100,
        10_000,
        "group.share.partition.max.record.locks",
        "how many records of a partition may be in flight",
    ),
    SHARE_RESET: GroupConfigKey(
        type=ConfigType.STRING,
        default="latest",
        check=_reset,
        help="where a share group starts in a partition that it has never read",
    ),
    SHARE_ISOLATION: GroupConfigKey(
        type=ConfigType.STRING,
        default=READ_UNCOMMITTED,
        check=_one_of(READ_UNCOMMITTED, READ_COMMITTED),
        help="whether records of open and aborted transactions are handed out",
    ),
    SHARE_RENEWAL: GroupConfigKey(
        type=ConfigType.BOOLEAN,
        default="true",
        check=_one_of("true", "false"),
        help="whether a member may ask for more time with a record",
    ),
    STREAMS_SESSION_TIMEOUT: _ms(
        45_000,
        1_000,
        1_800_000,
        "group.streams.session.timeout.ms",
        "after which silence a member of a streams group is out",
    ),
    STREAMS_HEARTBEAT_INTERVAL: _ms(
        5_000,
        100,
        60_000,
        "group.streams.heartbeat.interval.ms",
        "how often members of a streams group are told to heartbeat",
    ),
    STREAMS_STANDBYS: _count(
        0,
        0,
        10,
        "group.streams.num.standby.replicas",
        "how many copies of each state the other instances of an application keep",
    ),
    STREAMS_INITIAL_DELAY: _ms(
        3_000,
        0,
        300_000,
        "group.streams.initial.rebalance.delay.ms",
        "how long an empty streams group waits for more members before it hands out tasks",
    ),
    DEAD_LETTER_TOPIC: GroupConfigKey(
        type=ConfigType.STRING,
        default="",
        check=_topic_or_none,
        help="where records go that a share group has given up on; empty: nowhere",
    ),
    **dict(map(_assignment_interval, ("consumer", "share", "streams"))),
}
