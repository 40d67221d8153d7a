"""Client quotas: how much a user or a client may do, and what DescribeClientQuotas and
AlterClientQuotas (APIs 48 and 49, KIP-546) say and change.

Of several quotas that fit a client, the first of Kafka's order counts; it also says who shares it:

    1  user and client id       5  default user and default client id
    2  user and default client  6  default user
    3  user                     7  client id
    4  default user and client  8  default client id

Offered are the three that are enforced (`throttle.py`); a quota that nothing enforces is refused
rather than kept, so there is none by `ip`. Measures nothing and stores nothing.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.base.errors import Corrupt, Rejected
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.messages import alter_client_quotas as altering
from millstream.broker.wire.messages import describe_client_quotas as describing

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
QUOTA_NAMES = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE})
WHOLE_NUMBERS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})

ENTITY_NAME_LENGTH_MAX = 1_000
ENTITIES_MAX = 10_000
QUOTA_KEY = b"quota/"


@dataclass(frozen=True, slots=True)
class Default:
    """Whoever has no quota of their own."""

    def __repr__(self) -> str:
        return "<default>"


DEFAULT = Default()
Name = str | Default | None  # None: this quota does not ask


class Entity(NamedTuple):
    """Whom a quota is for. At least one of the two is not None."""

    user: Name = None
    client_id: Name = None

    def __str__(self) -> str:
        parts = [(USER, self.user), (CLIENT_ID, self.client_id)]
        return ", ".join(f"{what} {name!r}" for what, name in parts if name is not None)


class Applied(NamedTuple):
    """A quota that counts for a client, and with whom the client shares it."""

    limit: float
    shared_by: tuple[str | None, str | None]


class Quotas:
    """Every quota by entity. Owned by the broker's loop."""

    def __init__(self, known: Mapping[Entity, Mapping[str, float]] | None = None) -> None:
        self._of_entity: dict[Entity, Mapping[str, float]] = dict(known or {})

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._of_entity.items())

    def __len__(self) -> int:
        return len(self._of_entity)

    def of(self, entity: Entity) -> Mapping[str, float]:
        return self._of_entity.get(entity, {})

    def put(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """All limits of the entity; none removes it."""
        if limits:
            self._of_entity[entity] = limits
        else:
            self._of_entity.pop(entity, None)

    def applied(self, name: str, user: str, client_id: str) -> Applied | None:
        """The quota of this name that counts for a client."""
        if not self._of_entity:
            return None
        for entity in _in_order(user, client_id):
            limit = self.of(entity).get(name)
            if limit is not None:
                by_user = None if entity.user is None else user
                by_client = None if entity.client_id is None else client_id
                return Applied(limit, (by_user, by_client))
        return None


def _in_order(user: str, client_id: str) -> tuple[Entity, ...]:
    return (
        Entity(user, client_id),
        Entity(user, DEFAULT),
        Entity(user, None),
        Entity(DEFAULT, client_id),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT, None),
        Entity(None, client_id),
        Entity(None, DEFAULT),
    )


# --- alter ------------------------------------------------------------------------------------


class InvalidQuota(Rejected):
    def __init__(self, *, reason: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(f"client quota: {reason}")
        self.reason, self.code = reason, code


class AlteredQuotas(NamedTuple):
    """What to answer, and what to store before: all limits of each entity."""

    response: altering.AlterClientQuotasResponse
    changes: list[tuple[Entity, dict[str, float]]]


def alter_quotas(request: altering.AlterClientQuotasRequest, quotas: Quotas) -> AlteredQuotas:
    """Each entity for itself, with all its changes or none. `validate_only` changes nothing."""
    times_named = Counter(_as_named(entry.entity) for entry in request.entries)
    entries, changes = [], []
    for entry in request.entries:
        answer = altering.ResponseEntryData(entity=entry.entity)
        try:
            _check_named_once(times_named[_as_named(entry.entity)])
            entity = read_entity((each.entity_type, each.entity_name) for each in entry.entity)
            limits = _changed_limits(quotas.of(entity), entry.ops)
            _check_room(quotas, entity)
            changes.append((entity, limits))
        except InvalidQuota as error:
            answer.error_code, answer.error_message = error.code, str(error)
        entries.append(answer)
    response = altering.AlterClientQuotasResponse(entries=entries)
    return AlteredQuotas(response, [] if request.validate_only else changes)


def _as_named(entity: list[altering.EntityData]) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entity)


def _check_named_once(times: int) -> None:
    if times > 1:
        raise InvalidQuota(reason=f"the same entity is named {times} times in one request")


def _check_room(quotas: Quotas, entity: Entity) -> None:
    if len(quotas) >= ENTITIES_MAX and not quotas.of(entity):
        raise InvalidQuota(reason=f"there are {len(quotas)} entities already, no more are allowed")


def read_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """From (type, name) as on the wire, where a null name is the default."""
    names: dict[str, str | Default] = {}
    for what, name in parts:
        if what == IP:
            raise InvalidQuota(reason="quotas by ip are not supported: use user or client-id")
        if what not in (USER, CLIENT_ID):
            raise InvalidQuota(reason=f"unknown entity type {what[:100]!r}")
        if what in names:
            raise InvalidQuota(reason=f"entity type {what} is given twice")
        names[what] = DEFAULT if name is None else _checked_name(what, name)
    if not names:
        raise InvalidQuota(reason="the entity is empty; name a user, a client-id or both")
    return Entity(names.get(USER), names.get(CLIENT_ID))


def _checked_name(what: str, name: str) -> str:
    if not 0 < len(name) <= ENTITY_NAME_LENGTH_MAX:
        reason = f"a {what} has 1 to {ENTITY_NAME_LENGTH_MAX} characters, not {len(name)}"
        raise InvalidQuota(reason=reason)
    return name


def _changed_limits(before: Mapping[str, float], ops: list[altering.OpData]) -> dict[str, float]:
    twice = [key for key, times in Counter(op.key for op in ops).items() if times > 1]
    if twice:
        raise InvalidQuota(reason=f"{twice[0][:100]!r} is given twice")
    limits = dict(before)
    for op in ops:
        if op.remove:
            limits.pop(op.key, None)
        else:
            limits[op.key] = _checked_limit(op.key, op.value)
    return limits


def _checked_limit(key: str, value: float) -> float:
    if key not in QUOTA_NAMES:
        reason = f"{key[:100]!r} is not supported; there are {', '.join(sorted(QUOTA_NAMES))}"
        raise InvalidQuota(reason=reason)
    if not (math.isfinite(value) and value > 0):
        raise InvalidQuota(reason=f"{key} is {value}: it must be above 0")
    if key in WHOLE_NUMBERS and abs(value - round(value)) > 1e-6:
        raise InvalidQuota(reason=f"{key} is {value}: it must be a whole number")
    return float(round(value)) if key in WHOLE_NUMBERS else value


# --- describe ---------------------------------------------------------------------------------

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2


class _Wanted(NamedTuple):
    """One component of a filter: this name, or (None) any name of this type."""

    entity_type: str
    name: str | Default | None


def describe_quotas(
    request: describing.DescribeClientQuotasRequest, quotas: Quotas
) -> describing.DescribeClientQuotasResponse:
    try:
        wanted = [_read_component(each) for each in request.components]
        _check_combination([each.entity_type for each in wanted])
    except InvalidQuota as error:
        return describing.DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    found = [
        _entry(entity, limits)
        for entity, limits in quotas
        if _is_wanted(entity, wanted, is_strict=request.strict)
    ]
    return describing.DescribeClientQuotasResponse(entries=found)


def _read_component(component: describing.ComponentData) -> _Wanted:
    what, match = component.entity_type, component.match
    if not what:
        raise InvalidQuota(reason="the entity type of a filter is empty")
    if what not in (USER, CLIENT_ID, IP):
        reason = f"unknown entity type {what[:100]!r}"
        raise InvalidQuota(reason=reason, code=ErrorCode.UNSUPPORTED_VERSION)
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        raise InvalidQuota(reason=f"unknown match type {component.match_type}")
    if (match is None) == (component.match_type == MATCH_EXACT):
        raise InvalidQuota(reason="a name belongs to an exact match, and only to that")
    if component.match_type == MATCH_DEFAULT:
        return _Wanted(what, DEFAULT)
    return _Wanted(what, match)


def _check_combination(types: list[str]) -> None:
    if len(set(types)) < len(types):
        raise InvalidQuota(reason="an entity type is twice in one filter")
    if IP in types and len(types) > 1:
        raise InvalidQuota(reason="a filter by ip cannot be combined with user or client-id")


def _is_wanted(entity: Entity, wanted: list[_Wanted], *, is_strict: bool) -> bool:
    names = {USER: entity.user, CLIENT_ID: entity.client_id}
    has = {what: name for what, name in names.items() if name is not None}
    if is_strict and len(has) != len(wanted):
        return False
    return all(
        each.entity_type in has and each.name in (None, has[each.entity_type]) for each in wanted
    )


def _entry(entity: Entity, limits: Mapping[str, float]) -> describing.EntryData:
    return describing.EntryData(
        entity=[
            describing.EntityData(entity_type=what, entity_name=name)
            for what, name in _to_wire(entity)
        ],
        values=[describing.ValueData(key=key, value=limit) for key, limit in limits.items()],
    )


def _to_wire(entity: Entity) -> list[tuple[str, str | None]]:
    parts = ((USER, entity.user), (CLIENT_ID, entity.client_id))
    return [
        (what, name if isinstance(name, str) else None) for what, name in parts if name is not None
    ]


# --- records ----------------------------------------------------------------------------------


class UnreadableQuota(Corrupt):
    def __init__(self, *, key: bytes, reason: str) -> None:
        super().__init__(
            f"the record {key[:300]!r} cannot be read as a client quota ({reason}); restore the "
            "data directory from a copy"
        )
        self.key, self.reason = key, reason


def quota_record(entity: Entity, limits: Mapping[str, float]) -> tuple[bytes, bytes | None]:
    """Key and value; without limits the record is removed."""
    key = json.dumps(dict(_to_wire(entity)), sort_keys=True).encode()
    value = json.dumps(limits, sort_keys=True).encode() if limits else None
    return QUOTA_KEY + key, value


def read_quota(key: bytes, value: bytes) -> tuple[Entity, dict[str, float]]:
    """A record of the log, checked."""
    try:
        entity = read_entity(json.loads(key.removeprefix(QUOTA_KEY)).items())
        limits = {name: _checked_limit(name, limit) for name, limit in json.loads(value).items()}
    except (InvalidQuota, ValueError, AttributeError, TypeError) as error:
        raise UnreadableQuota(key=key, reason=f"{error!r}") from error
    return entity, limits
