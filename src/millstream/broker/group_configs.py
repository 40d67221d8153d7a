"""What an operator sets for single consumer groups (KIP-848): their pace.

Kept in the broker's metadata, one record per group, also for groups that are not there yet; a
group that says nothing follows the broker's settings.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millstream.base.clock import Clock
from millstream.base.errors import Corrupt
from millstream.broker.durable_state import DurableState
from millstream.broker.groups.group_state import ConsumerGroupLimits
from millstream.broker.topic_config import InvalidConfig
from millstream.broker.topics import OverridesChange

GROUP_CONFIG_KEY = b"group-config/"

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigKey:
    """One configuration name, in milliseconds, and the broker's config that it overrides."""

    broker_name: str
    at_least: int
    at_most: int
    help: str


GROUP_CONFIGS: Mapping[str, GroupConfigKey] = {
    SESSION_TIMEOUT: GroupConfigKey(
        broker_name="group.consumer.session.timeout.ms",
        at_least=1_000,
        at_most=1_800_000,
        help="after which silence a member is out",
    ),
    HEARTBEAT_INTERVAL: GroupConfigKey(
        broker_name="group.consumer.heartbeat.interval.ms",
        at_least=100,
        at_most=60_000,
        help="how often members are told to heartbeat",
    ),
}


class GroupConfigs:
    """The overrides of each group by its id. Owned by the broker's loop."""

    def __init__(
        self, state: DurableState, *, defaults: ConsumerGroupLimits, now_ms: Clock
    ) -> None:
        self._state = state
        self._now_ms = now_ms
        self.defaults = defaults
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

    @property
    def defaults_by_name(self) -> Mapping[str, str]:
        return {
            SESSION_TIMEOUT: str(self.defaults.session_timeout_ms),
            HEARTBEAT_INTERVAL: str(self.defaults.heartbeat_interval_ms),
        }

    def limits_of(self, group_id: str) -> ConsumerGroupLimits:
        return self._limits(self.of(group_id))

    def changed(self, group_id: str, change: OverridesChange) -> dict[str, str]:
        """What the group's configuration would be, if all of it is allowed."""
        if not group_id:
            raise InvalidConfig(name="group", value="", reason="the group's name is empty")
        overrides = change(dict(self.of(group_id)))
        for name, value in overrides.items():
            _check(name, value)
        limits = self._limits(overrides)
        if limits.heartbeat_interval_ms >= limits.session_timeout_ms:
            reason = f"must be below the session timeout, {limits.session_timeout_ms} ms"
            value = str(limits.heartbeat_interval_ms)
            raise InvalidConfig(name=HEARTBEAT_INTERVAL, value=value, reason=reason)
        return overrides

    async def change(self, group_id: str, change: OverridesChange) -> None:
        """Returns when that is durable."""
        async with self._turn:
            overrides = self.changed(group_id, change)
            value = json.dumps(overrides, sort_keys=True).encode() if overrides else None
            key = GROUP_CONFIG_KEY + group_id.encode()
            await self._state.put([(key, value)], now_ms=self._now_ms())
            self._overrides.pop(group_id, None)
            if overrides:
                self._overrides[group_id] = overrides

    def _limits(self, overrides: Mapping[str, str]) -> ConsumerGroupLimits:
        defaults = self.defaults
        return ConsumerGroupLimits(
            group_size_max=defaults.group_size_max,
            session_timeout_ms=int(overrides.get(SESSION_TIMEOUT, defaults.session_timeout_ms)),
            heartbeat_interval_ms=int(
                overrides.get(HEARTBEAT_INTERVAL, defaults.heartbeat_interval_ms)
            ),
        )


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
    if key is None:
        raise InvalidConfig(name=name, value=value, reason="there is no such config of groups")
    if not value.isdecimal() or not key.at_least <= int(value) <= key.at_most:
        reason = f"must be a number of milliseconds, {key.at_least} to {key.at_most}"
        raise InvalidConfig(name=name, value=value, reason=reason)
