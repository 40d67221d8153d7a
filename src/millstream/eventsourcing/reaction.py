"""Reactions: an event of one aggregate asks for commands on others. Pure.

    @app.reaction(SeatHeld)
    def charge(event, cause):
        yield wallets.asking[event.customer].charge(event.price, booking=event.booking)

The ids of the commands come from the event's id, so that it does not matter how often a reaction
runs. So a check that spans aggregates takes two steps: a tentative event, then one that confirms
or undoes it.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Rejected
from millstream.eventsourcing.command_topic import ID_LENGTH_MAX, Origin, SentCommand
from millstream.eventsourcing.declared_event import facts_of
from millstream.eventsourcing.personal import personal_fields
from millstream.eventsourcing.stored_event import StoredEvent

COMMANDS_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a reaction reacts to. `id` is the event's, `aggregate_id` whose event it is."""

    id: str
    stream: str
    aggregate_id: str
    version: int
    seq: int
    at: datetime
    meta: Mapping[str, Any]


class BadReaction(Rejected):
    def __init__(self, *, reaction: str, reason: str) -> None:
        super().__init__(f"reaction {reaction}: {reason}")
        self.reaction, self.reason = reaction, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A function of an event, and of its cause if it takes two parameters."""

    name: str
    kinds: tuple[type, ...]
    function: Callable[..., Iterable[SentCommand] | None]
    takes_cause: bool

    @property
    def types(self) -> frozenset[str]:
        """The stored names of the events that it is for."""
        found = (facts_of(kind) for kind in self.kinds)
        return frozenset(facts.name for facts in found if facts is not None)

    @property
    def is_personal(self) -> bool:
        return any(personal_fields(kind) for kind in self.kinds)


def reaction_of(
    function: Callable[..., Any], kinds: Iterable[type], name: str | None = None
) -> Reaction:
    """Refuses at its own line what could not work."""
    kinds, called = tuple(kinds), name or function.__name__
    if not called or len(called) > NAME_LENGTH_MAX:
        raise BadDeclaration(f"a reaction's name has 1 to {NAME_LENGTH_MAX} letters: {called!r}")
    if not kinds:
        raise BadDeclaration(f"reaction {called}: name the events that it is for")
    for kind in kinds:
        if not inspect.isclass(kind) or facts_of(kind) is None:
            raise BadDeclaration(f"reaction {called}: {kind!r} is no event: declare it with @event")
    count = len(inspect.signature(function).parameters)
    if count not in (1, 2) or inspect.iscoroutinefunction(function):
        raise BadDeclaration(f"reaction {called}: a function of (event) or of (event, cause)")
    return Reaction(name=called, kinds=kinds, function=function, takes_cause=count == 2)


def cause_of(stored: StoredEvent) -> Cause:
    return Cause(
        id=stored.id,
        stream=stored.stream,
        aggregate_id=stored.stream.partition(":")[2],
        version=stored.version,
        seq=stored.seq,
        at=stored.at,
        meta=stored.meta,
    )


def commands_of(reaction: Reaction, event: object, cause: Cause) -> list[SentCommand]:
    """What it asks for, each with an id of its own that is the same in each run."""
    given = (event, cause) if reaction.takes_cause else (event,)
    found = list(reaction.function(*given) or ())
    if len(found) > COMMANDS_MAX:
        reason = f"{len(found):,} commands for one event, of {COMMANDS_MAX:,} that may be"
        raise BadReaction(reaction=reaction.name, reason=reason)
    return [_asked(reaction, cause, number, one) for number, one in enumerate(found)]


def asked_again(
    reaction: Reaction, event: object, cause: Cause, sent: SentCommand
) -> SentCommand | None:
    """The same command made anew; None if the reaction asks for something else by now."""
    for one in commands_of(reaction, event, cause):
        is_same = (one.aggregate, one.stream, one.command) == (
            sent.aggregate,
            sent.stream,
            sent.command,
        )
        if one.id == sent.id and is_same:
            return one
    return None


def _asked(reaction: Reaction, cause: Cause, number: int, sent: object) -> SentCommand:
    if not isinstance(sent, SentCommand):
        reason = f"it yields {sent!r}: yield commands, wallets.asking[id].charge(...)"
        raise BadReaction(reaction=reaction.name, reason=reason)
    correlation = cause.meta.get("correlation") or cause.id
    because = {"by": f"reaction {reaction.name}", "causation": cause.id, "correlation": correlation}
    id = sent.id or f"{reaction.name}:{cause.id}:{number}"
    if len(id) > ID_LENGTH_MAX:
        reason = f"the id of a command has {len(id)} letters, of {ID_LENGTH_MAX}"
        raise BadReaction(reaction=reaction.name, reason=reason)
    origin = Origin(reaction=reaction.name, stream=cause.stream, version=cause.version)
    return msgspec.structs.replace(sent, id=id, meta={**because, **sent.meta}, origin=origin)
