"""Facts as classes: `@event` gives a class a neutral name and a version. Pure.

    @event
    class Deposited:
        amount: int

    @event(name="money-withdrawn", version=2)
    class Withdrawn:
        cents: int

What is stored is the name and the version, never the path of a Python class: a class may move or be
renamed.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Final, TypeVar, cast, dataclass_transform, overload
from weakref import WeakValueDictionary

from millstream.base.declared import BadDeclaration

ClassT = TypeVar("ClassT", bound=type)
Data = dict[str, Any]
Step = Callable[[Data], Data]

NAME_LENGTH_MAX: Final = 100
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
FACTS: Final = "__millstream_event__"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts:
    """What is known of an event's class. `steps[n]` lifts data of version n to n + 1.

    `closes`: the state begins anew with it. `subject`: the field that names whose data it holds.
    """

    name: str
    version: int = 1
    closes: bool = False
    subject: str | None = None
    steps: dict[int, Step] = field(default_factory=dict)


# By module and qualified name, for aggregates that are declared beside their events.
_declared: WeakValueDictionary[tuple[str, str], type] = WeakValueDictionary()


@overload
def event(kind: ClassT, /) -> ClassT: ...


@overload
def event(
    *, name: str | None = None, version: int = 1, closes: bool = False, subject: str | None = None
) -> Callable[[ClassT], ClassT]: ...


@dataclass_transform(frozen_default=True)
def event(
    kind: Any = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    closes: bool = False,
    subject: str | None = None,
) -> Any:
    """Make a class a kind of event: a frozen dataclass with a name and a version.

    `name`: as it is stored, if not the class's. `version`: one more each time that its fields
    change in a way that old data does not fit; then it needs an `@upcast`. `closes`: the state
    begins anew with it, so that the events before it may go ("balance brought forward").
    `subject`: the field that says whose personal data it holds, if not the stream's id.
    """

    def declare(given: ClassT) -> ClassT:
        facts = EventFacts(
            name=given.__name__ if name is None else name,
            version=version,
            closes=closes,
            subject=subject,
        )
        _require_facts(given, facts)
        made: Any = given if _is_plain_dataclass(given) else dataclass(frozen=True)(given)
        if subject is not None and subject not in made.__dataclass_fields__:
            raise BadDeclaration(f"event {facts.name}: subject={subject!r} is no field of it")
        setattr(made, FACTS, facts)
        _declared[made.__module__, made.__qualname__] = made
        return cast(ClassT, made)

    return declare if kind is None else declare(kind)


def _is_plain_dataclass(given: type) -> bool:
    return is_dataclass(given) and "__dataclass_fields__" in vars(given)


def _require_facts(given: object, facts: EventFacts) -> None:
    if not inspect.isclass(given):
        raise BadDeclaration(f"@event is for classes, not for {shown(given)}")
    if not NAME.fullmatch(facts.name) or len(facts.name) > NAME_LENGTH_MAX:
        raise BadDeclaration(
            f"event {facts.name!r}: a name has letters, digits, '_', '.' and '-', begins with a "
            f"letter, and has {NAME_LENGTH_MAX} characters at most"
        )
    if facts.version < 1:
        raise BadDeclaration(f"event {facts.name}: version={facts.version}: a number from 1 on")


def facts_of(kind: type) -> EventFacts | None:
    """None if it is no event. A class that inherits from one is none before it is marked too."""
    found: EventFacts | None = vars(kind).get(FACTS)
    return found


def declared_beside(module: str, qualname: str, name: str) -> type | None:
    """The event class of this name in the scope of a class, or in one around it."""
    scope = qualname
    while True:
        found = _declared.get((module, f"{scope}.{name}" if scope else name))
        if found is not None or not scope:
            return found
        scope = scope.rpartition(".")[0]


def shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= NAME_LENGTH_MAX else text[: NAME_LENGTH_MAX - 1] + "…"
