"""What an aggregate's class says, read once when it is made: its events, folds and commands. Pure.

Refuses at the class's own line what could not work later.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.declared_event import NAME, NAME_LENGTH_MAX, declared_beside, facts_of
from millstream.eventsourcing.event_types import EventTypes

FOLD_PREFIX: Final = "on_"
# Words of the call, which a command's own parameters may not be: bank["a"].pay(5, id="req-1").
CALL_WORDS: Final = frozenset({"id", "expect", "wait", "by", "why", "causation", "correlation"})
# What a handle has beside commands.
HANDLE_WORDS: Final = frozenset({"id", "stream", "version", "state", "history", "shun"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an aggregate's class says, read once. `initial`: its class attributes.

    `plain`: the parameters of commands that have no special ones: their calls are quicker to bind.
    """

    name: str
    kinds: tuple[type, ...]
    folds: Mapping[type, Callable[[Any, Any], object]]
    commands: Mapping[str, inspect.Signature]
    plain: Mapping[str, tuple[str, ...]]
    initial: Mapping[str, Any]
    closing: frozenset[str]
    has_personal: bool
    snapshot_version: int


def plan_of(
    kind: type, root: type, *, name: str, events: tuple[type, ...], snapshot_version: int
) -> Plan:
    """Reads a class, and refuses at its own line what could not work."""
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise BadDeclaration(
            f"aggregate {name!r}: a name has letters, digits, '_', '.' and '-', begins with a "
            f"letter, and has {NAME_LENGTH_MAX} characters at most"
        )
    _require_own_names(kind, root, name)
    folds = dict(_folds_of(kind, root, name, events))
    kinds = tuple(dict.fromkeys((*folds, *events)))
    types = EventTypes(kinds)  # refuses two of one name
    commands = dict(_commands_of(kind, root, name))
    return Plan(
        name=name,
        kinds=kinds,
        folds=folds,
        commands=commands,
        plain={one: tuple(own.parameters) for one, own in commands.items() if _is_plain(own)},
        initial=dict(_initial_of(kind, root)),
        closing=frozenset(_closing_of(kinds)),
        has_personal=types.has_personal,
        snapshot_version=snapshot_version,
    )


def _closing_of(kinds: Iterable[type]) -> Iterator[str]:
    for facts in map(facts_of, kinds):
        if facts is not None and facts.closes:
            yield facts.name


def _members(kind: type, root: type) -> Iterator[tuple[str, type, Any]]:
    """Names with the class that has them, and what it is; of `root` itself none."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if owner in (root, object):
            continue
        for name, member in vars(owner).items():
            if name not in seen and not name.startswith("__"):
                seen.add(name)
                yield name, owner, member


def _require_own_names(kind: type, root: type, name: str) -> None:
    for owner in kind.__mro__:
        if owner in (root, object):
            continue
        for taken in ("id", "version", "_is_folding", "_key_ids"):
            if taken in vars(owner):
                raise BadDeclaration(f"{name}: `{taken}` is every aggregate's own: use another")
        if "__init__" in vars(owner):
            raise BadDeclaration(
                f"{name} has an __init__: what it is before its first event is said by class "
                "attributes, balance = 0"
            )


def _folds_of(
    kind: type, root: type, aggregate: str, events: tuple[type, ...]
) -> Iterator[tuple[type, Callable[[Any, Any], object]]]:
    named = {one.__name__: one for one in events if inspect.isclass(one)}
    for name, owner, member in _members(kind, root):
        if not name.startswith(FOLD_PREFIX) or not inspect.isfunction(member):
            continue
        if _is_stepwise(member):
            raise BadDeclaration(f"{aggregate}.{name} yields: a fold only changes the state")
        wanted = name.removeprefix(FOLD_PREFIX)
        found = named.get(wanted) or _event_in_reach(owner, member, wanted)
        if found is None:
            raise BadDeclaration(
                f"{aggregate}.{name}: there is no event class {wanted} beside the aggregate. "
                f"Declare it with @event before, or name it in events=[...]"
            )
        yield found, member


def _event_in_reach(owner: type, method: Any, name: str) -> type | None:
    beside = declared_beside(owner.__module__, owner.__qualname__, name)
    if beside is not None:
        return beside
    found = method.__globals__.get(name)  # imported
    return found if inspect.isclass(found) and facts_of(found) is not None else None


def _commands_of(kind: type, root: type, aggregate: str) -> Iterator[tuple[str, inspect.Signature]]:
    for name, _, member in _members(kind, root):
        if name.startswith(("_", FOLD_PREFIX)) or not inspect.isfunction(member):
            continue
        if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
            raise BadDeclaration(
                f"{aggregate}.{name} is async: a command decides by the state alone. Ask others "
                "before, and give it what they said"
            )
        if inspect.isgeneratorfunction(member):
            yield name, _command_signature(aggregate, name, member)


def _command_signature(aggregate: str, name: str, member: Any) -> inspect.Signature:
    if name in HANDLE_WORDS:
        raise BadDeclaration(
            f"{aggregate}.{name}: a command cannot have the name of what every handle has "
            f"({', '.join(sorted(HANDLE_WORDS))})"
        )
    _, *own = inspect.signature(member).parameters.values()
    for parameter in own:
        if parameter.name in CALL_WORDS or parameter.kind is parameter.VAR_KEYWORD:
            raise BadDeclaration(
                f"{aggregate}.{name}({parameter}): {', '.join(sorted(CALL_WORDS))} are words of "
                "every call, so a command has other parameters, each by name"
            )
    return inspect.Signature(own)


def _is_plain(signature: inspect.Signature) -> bool:
    return all(one.kind is one.POSITIONAL_OR_KEYWORD for one in signature.parameters.values())


def _is_stepwise(member: Any) -> bool:
    return inspect.isgeneratorfunction(member) or inspect.iscoroutinefunction(member)


def _initial_of(kind: type, root: type) -> Iterator[tuple[str, Any]]:
    for name, _, member in _members(kind, root):
        if inspect.isroutine(member) or inspect.isclass(member):
            continue
        if hasattr(member, "__get__"):  # a property or the like
            continue
        yield name, member
