"""What an operator sets for single groups (KIP-848, 932, 1071): their pace, and how they share.

Kept in the broker's metadata, one record per group, also for groups that are not there yet; a
group that says nothing follows the broker's settings. Which names there are is said in
`group_config_keys.py`.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping

from millstream.base.clock import Clock
from millstream.base.errors import Corrupt
from millstream.broker.config import BrokerConfig
from millstream.broker.durable_state import DurableState
from millstream.broker.group_config_keys import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    READ_COMMITTED,
    SHARE_DELIVERY_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION,
    SHARE_LOCK_DURATION,
    SHARE_LOCKS_MAX,
    SHARE_RENEWAL,
    SHARE_RESET,
    SHARE_SESSION_TIMEOUT,
    STREAMS_HEARTBEAT_INTERVAL,
    STREAMS_INITIAL_DELAY,
    STREAMS_SESSION_TIMEOUT,
    STREAMS_STANDBYS,
)
from millstream.broker.groups.group_state import ConsumerGroupLimits
from millstream.broker.share.share_group import ShareGroupLimits
from millstream.broker.share.share_partition import ShareTerms
from millstream.broker.share.share_reset import ShareReset, read_share_reset
from millstream.broker.streams.streams_group import StreamsGroupLimits
from millstream.broker.topic_config import InvalidConfig
from millstream.broker.topics import OverridesChange

logger = logging.getLogger(__name__)

GROUP_CONFIG_KEY = b"group-config/"

PACES = (
    (CONSUMER_HEARTBEAT_INTERVAL, CONSUMER_SESSION_TIMEOUT),
    (SHARE_HEARTBEAT_INTERVAL, SHARE_SESSION_TIMEOUT),
    (STREAMS_HEARTBEAT_INTERVAL, STREAMS_SESSION_TIMEOUT),
)


class GroupConfigs:
    """The overrides of each group by its id. Owned by the broker's loop."""

    def __init__(self, state: DurableState, config: BrokerConfig, *, now_ms: Clock) -> None:
        self._state = state
        self._now_ms = now_ms
        self.defaults = {name: key.default for name, key in GROUP_CONFIGS.items()} | _set_by(config)
        # One change at a time: each starts from what the one before it has left.
        self._turn = asyncio.Lock()
        self._overrides: dict[str, dict[str, str]] = {}
        for key, value in state:
            if key.startswith(GROUP_CONFIG_KEY):
                group_id = key.removeprefix(GROUP_CONFIG_KEY).decode()
                self._overrides[group_id] = _read(group_id, value)

    def __iter__(self) -> Iterator[str]:
        """The groups that have some."""
        return iter(self._overrides)

    def of(self, group_id: str) -> Mapping[str, str]:
        return self._overrides.get(group_id, {})

    # --- what it means ------------------------------------------------------------------------

    def limits_of(self, group_id: str) -> ConsumerGroupLimits:
        return ConsumerGroupLimits(
            session_timeout_ms=self._number(group_id, CONSUMER_SESSION_TIMEOUT),
            heartbeat_interval_ms=self._number(group_id, CONSUMER_HEARTBEAT_INTERVAL),
        )

    def share_limits_of(self, group_id: str) -> ShareGroupLimits:
        return ShareGroupLimits(
            session_timeout_ms=self._number(group_id, SHARE_SESSION_TIMEOUT),
            heartbeat_interval_ms=self._number(group_id, SHARE_HEARTBEAT_INTERVAL),
        )

    def streams_limits_of(self, group_id: str) -> StreamsGroupLimits:
        return StreamsGroupLimits(
            session_timeout_ms=self._number(group_id, STREAMS_SESSION_TIMEOUT),
            heartbeat_interval_ms=self._number(group_id, STREAMS_HEARTBEAT_INTERVAL),
            initial_rebalance_delay_ms=self._number(group_id, STREAMS_INITIAL_DELAY),
            standbys=self._number(group_id, STREAMS_STANDBYS),
        )

    def share_terms_of(self, group_id: str) -> ShareTerms:
        return ShareTerms(
            lock_ms=self._number(group_id, SHARE_LOCK_DURATION),
            delivery_count_max=self._number(group_id, SHARE_DELIVERY_LIMIT),
            records_in_flight_max=self._number(group_id, SHARE_LOCKS_MAX),
        )

    def share_reset_of(self, group_id: str) -> ShareReset:
        reset = read_share_reset(self._value(group_id, SHARE_RESET))
        assert reset is not None, "it was checked when it was set"
        return reset

    def share_reads_committed(self, group_id: str) -> bool:
        return self._value(group_id, SHARE_ISOLATION) == READ_COMMITTED

    def share_may_renew(self, group_id: str) -> bool:
        return self._value(group_id, SHARE_RENEWAL) == "true"

    def dead_letter_topic_of(self, group_id: str) -> str | None:
        return self._value(group_id, DEAD_LETTER_TOPIC) or None

    def _number(self, group_id: str, name: str) -> int:
        return int(self._value(group_id, name))

    def _value(self, group_id: str, name: str) -> str:
        return self.of(group_id).get(name, self.defaults[name])

    # --- changes ------------------------------------------------------------------------------

    def changed(self, group_id: str, change: OverridesChange) -> dict[str, str]:
        """What the group's configuration would be, if all of it is allowed."""
        if not group_id:
            raise InvalidConfig(name="group", value="", reason="the group's name is empty")
        overrides = change(dict(self.of(group_id)))
        for name, value in overrides.items():
            _check(name, value)
        effective = self.defaults | overrides
        for heartbeat, session in PACES:
            _check_pace(effective, heartbeat, session)
        return overrides

    async def change(self, group_id: str, change: OverridesChange) -> None:
        """Returns when that is durable."""
        async with self._turn:
            overrides = self.changed(group_id, change)
            value = json.dumps(overrides, sort_keys=True).encode() if overrides else None
            key = GROUP_CONFIG_KEY + group_id.encode()
            await self._state.put([(key, value)], now_ms=self._now_ms())
            _warn(group_id, overrides, before=self.of(group_id))
            self._overrides.pop(group_id, None)
            if overrides:
                self._overrides[group_id] = overrides


def _set_by(config: BrokerConfig) -> dict[str, str]:
    """What the broker's settings say of all groups."""
    return {
        CONSUMER_SESSION_TIMEOUT: str(config.group_consumer_session_timeout_ms),
        CONSUMER_HEARTBEAT_INTERVAL: str(config.group_consumer_heartbeat_interval_ms),
        SHARE_SESSION_TIMEOUT: str(config.group_share_session_timeout_ms),
        SHARE_HEARTBEAT_INTERVAL: str(config.group_share_heartbeat_interval_ms),
        SHARE_LOCK_DURATION: str(config.group_share_record_lock_ms),
    }


def _read(group_id: str, value: bytes) -> dict[str, str]:
    try:
        overrides: dict[str, str] = json.loads(value)
        for name, text in overrides.items():
            _check(name, text)
    except (ValueError, AttributeError, InvalidConfig) as error:
        raise Corrupt(
            f"__millstream_metadata: the configs of group {group_id!r} cannot be read ({error}); "
            "restore the data directory from a copy"
        ) from error
    return overrides


def _check(name: str, value: str) -> None:
    key = GROUP_CONFIGS.get(name)
    reason = "there is no such config of groups" if key is None else key.check(value)
    if reason is not None:
        raise InvalidConfig(name=name, value=value, reason=reason)


def _warn(group_id: str, overrides: Mapping[str, str], *, before: Mapping[str, str]) -> None:
    """Say which of the values have no effect here, unless they are what everybody has."""
    for name, value in overrides.items():
        key = GROUP_CONFIGS[name]
        if key.is_without_effect and value not in (key.default, before.get(name)):
            logger.warning(
                "group %a: %s=%s is accepted and has no effect on a single node",
                group_id,
                name,
                value,
            )


def _check_pace(values: Mapping[str, str], heartbeat: str, session: str) -> None:
    if int(values[heartbeat]) >= int(values[session]):
        reason = f"must be below the session timeout, {values[session]} ms"
        raise InvalidConfig(name=heartbeat, value=values[heartbeat], reason=reason)
