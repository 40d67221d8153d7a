"""Aggregates: commands that decide, `on_` methods that fold. Pure.

    class Account(Aggregate):
        balance = 0                                  # the state before the first event

        def withdraw(self, amount):                  # a command: validates, then yields facts
            if amount > self.balance:
                raise Rejected("insufficient funds")
            yield Withdrawn(amount)

        def on_Withdrawn(self, event):               # a fold: never refuses
            self.balance -= event.amount

A public method that yields is a command; `on_X` folds events of the class X that is in reach of the
aggregate. Each event is folded before the command goes on, so that it sees its own effects. Rules
are in commands only: history replays after they were tightened. An event that has no `on_` method
is named in `events=`, and then only counted.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Corrupt, Rejected
from millstream.eventsourcing.aggregate_plan import Plan, plan_of
from millstream.eventsourcing.declared_event import facts_of
from millstream.eventsourcing.event_types import NO_KEYS, KeyIds, Opened
from millstream.eventsourcing.untold import cause_of, cause_to_chain

UNCHANGING = (type(None), bool, int, float, str, bytes)


class FoldFailed(Corrupt):
    def __init__(self, *, stream: str, version: int, event: str, cause: str) -> None:
        super().__init__(
            f"stream {stream}, version {version}: on_{event} failed: {cause}. A fold must take "
            "every event that was ever stored: mend it, or shun the event if it is the mistake"
        )
        self.stream, self.version, self.event, self.cause = stream, version, event, cause


class StateIsReadOnly(Rejected, AttributeError):
    def __init__(self, *, aggregate: str, name: str) -> None:
        super().__init__(
            f"{aggregate}.{name} cannot be set here: state is changed in on_ methods only, so that "
            "a replay gives the same. Yield an event, and set it there"
        )
        self.aggregate, self.name = aggregate, name


class Aggregate:
    """Subclass it. `self.id` and `self.version` are there beside what the subclass has.

    `class Account(Aggregate, name="account", events=[Noted], snapshot_version=2)`: `name` is the
    first part of its streams' names, if not the class's; `events` are those without an `on_`
    method; another `snapshot_version` discards snapshots when a fold changed where we do not see.
    """

    __slots__ = ("__dict__", "__weakref__", "_is_folding", "_key_ids", "id", "version")

    id: str
    version: int
    _is_folding: bool
    _key_ids: KeyIds  # of the keys that opened what is in it
    __plan__: ClassVar[Plan]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        events: Iterable[type] = (),
        snapshot_version: int = 1,
        **rest: Any,
    ) -> None:
        super().__init_subclass__(**rest)
        cls.__plan__ = plan_of(
            cls,
            Aggregate,
            name=cls.__name__ if name is None else name,
            events=tuple(events),
            snapshot_version=snapshot_version,
        )

    def __init__(self, id: str = "") -> None:
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "version", 0)
        object.__setattr__(self, "_is_folding", False)
        object.__setattr__(self, "_key_ids", NO_KEYS)
        self.__dict__.update(fresh_state(self.__plan__))

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._is_folding:
            raise StateIsReadOnly(aggregate=self.__plan__.name, name=name)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = (self.id, self.version), (other.id, other.version)
        return mine == theirs and state_in(self) == state_in(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        shown = "".join(f", {name}={value!r}" for name, value in state_in(self).items())
        return f"{type(self).__name__}({self.id!r}, version={self.version}{shown})"


def state_in(aggregate: Aggregate) -> dict[str, Any]:
    """All that it has of state, whether an event has set it yet or not."""
    return {**aggregate.__plan__.initial, **vars(aggregate)}


def fresh_state(plan: Plan) -> dict[str, Any]:
    """What may be changed in place is copied; the rest is read from the class until it is set."""
    return {
        name: copy.deepcopy(value)
        for name, value in plan.initial.items()
        if not isinstance(value, UNCHANGING)
    }


def restored(
    kind: type[Aggregate],
    id: str,
    version: int,
    state: Mapping[str, Any],
    key_ids: KeyIds = NO_KEYS,
) -> Aggregate:
    """As it was at a version."""
    found = kind(id)
    vars(found).update(state)
    object.__setattr__(found, "version", version)
    object.__setattr__(found, "_key_ids", key_ids)
    return found


def copied(aggregate: Aggregate) -> Aggregate:
    state = copy.deepcopy(vars(aggregate))
    kind, keys = type(aggregate), key_ids_of(aggregate)
    return restored(kind, aggregate.id, aggregate.version, state, keys)


def key_ids_of(aggregate: Aggregate) -> KeyIds:
    """Of the keys of all subjects whose data may be in its state."""
    return aggregate._key_ids


# --- folding ----------------------------------------------------------------------------------


def count(aggregate: Aggregate, version: int) -> None:
    """An event that changes nothing but the version."""
    object.__setattr__(aggregate, "version", version)


def fold(aggregate: Aggregate, opened: Opened, *, version: int, stream: str) -> None:
    """Take an event into the state. The closing kind begins it anew."""
    event, key_ids = opened
    kind = type(event)
    facts = facts_of(kind)
    if facts is not None and facts.closes:
        _begin_anew(aggregate)
    if key_ids:
        object.__setattr__(aggregate, "_key_ids", aggregate._key_ids | key_ids)
    method = aggregate.__plan__.folds.get(kind)
    if method is not None:
        _call_fold(method, aggregate, event, version=version, stream=stream)
    object.__setattr__(aggregate, "version", version)


def _begin_anew(aggregate: Aggregate) -> None:
    vars(aggregate).clear()
    vars(aggregate).update(fresh_state(aggregate.__plan__))
    object.__setattr__(aggregate, "_key_ids", NO_KEYS)


def _call_fold(
    method: Callable[[Any, Any], object],
    aggregate: Aggregate,
    event: object,
    *,
    version: int,
    stream: str,
) -> None:
    object.__setattr__(aggregate, "_is_folding", True)
    try:
        method(aggregate, event)
    except Exception as error:
        is_personal, name = aggregate.__plan__.has_personal, type(event).__name__
        cause = cause_of(error, is_personal=is_personal)
        failed = FoldFailed(stream=stream, version=version, event=name, cause=cause)
        raise failed from cause_to_chain(error, is_personal=is_personal)
    finally:
        object.__setattr__(aggregate, "_is_folding", False)


def require_aggregate(kind: object) -> type[Aggregate]:
    if inspect.isclass(kind) and issubclass(kind, Aggregate) and kind is not Aggregate:
        return kind
    raise BadDeclaration(f"{kind!r} is no aggregate: give a class that inherits from Aggregate")
