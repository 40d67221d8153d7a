"""A command as it is called, and its events in the writer, folded one by one. Pure."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec

from millstream.base.errors import Rejected
from millstream.base.near_names import did_you_mean, there_are
from millstream.eventsourcing.aggregate import Aggregate, fold
from millstream.eventsourcing.aggregate_plan import Plan
from millstream.eventsourcing.declared_event import facts_of
from millstream.eventsourcing.event_types import EventTypes, NotAnEvent
from millstream.eventsourcing.stored_event import NewEvent

# A command that never ends would keep the writer of its partition for good.
EVENTS_PER_COMMAND_MAX: Final = 10_000


class NotItsEvent(Rejected):
    def __init__(self, *, aggregate: str, event: str) -> None:
        super().__init__(
            f"{aggregate} does not know the event {event} that its command yields: give it a "
            f"method on_{event}, or say class {aggregate}(Aggregate, events=[{event}]) if it "
            "changes no state"
        )
        self.aggregate, self.event = aggregate, event


class UnknownCommand(Rejected, AttributeError):
    def __init__(self, *, aggregate: str, command: str, known: Iterable[str]) -> None:
        known = sorted(known)
        hint = did_you_mean(command, known, otherwise="A command is a public method that yields")
        super().__init__(
            f"{aggregate} has no command {command!r} (there are: {there_are(known)}). {hint}"
        )
        self.aggregate, self.command = aggregate, command


class BadArguments(Rejected, TypeError):
    def __init__(self, *, aggregate: str, command: str, reason: str) -> None:
        super().__init__(f"{aggregate}.{command}: {reason}")
        self.aggregate, self.command, self.reason = aggregate, command, reason


class TooManyEvents(Rejected):
    def __init__(self, *, stream: str, command: str, limit: int) -> None:
        super().__init__(
            f"{stream}: command {command} yields more than {limit:,} events. Does it end? If so, "
            "do it in several commands"
        )
        self.stream, self.command, self.limit = stream, command, limit


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A command with its arguments, which fit its parameters."""

    aggregate: str
    command: str
    signature: inspect.Signature
    arguments: Mapping[str, Any]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def encoded(self) -> bytes:
        """The same for the same command with the same arguments, however they were given.

        Defaults are left out, given or not: a retry after a default has changed is the same, too.
        """
        try:
            said = [self.command, dict(self._said())]
            return _encode(said)
        except (TypeError, ValueError) as error:
            reason = f"with an id, its arguments must be what JSON can say: {error}"
            raise BadArguments(
                aggregate=self.aggregate, command=self.command, reason=reason
            ) from None

    def _said(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.arguments.items():
            default = self.signature.parameters[name].default
            if default is inspect.Parameter.empty or not _is_same(value, default):
                yield name, value


_encode = msgspec.json.Encoder(order="deterministic").encode


def _is_same(value: Any, default: Any) -> bool:
    """In JSON, as it may come over the topic: 1 and True are not the same."""
    if value is default:
        return True
    try:
        encoded = _encode(default)
    except (TypeError, ValueError):
        return False
    return encoded == _encode(value)


def call_of(
    plan: Plan, command: str, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> Call:
    signature = plan.commands.get(command)
    if signature is None:
        raise UnknownCommand(aggregate=plan.name, command=command, known=plan.commands)
    plain = plan.plain.get(command)
    if plain is not None and not named and len(plain) == len(positional):
        return Call(
            aggregate=plan.name,
            command=command,
            signature=signature,
            arguments=dict(zip(plain, positional, strict=True)),
            positional=positional,
            named=named,
        )
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise BadArguments(aggregate=plan.name, command=command, reason=str(error)) from None
    return Call(
        aggregate=plan.name,
        command=command,
        signature=signature,
        arguments=bound.arguments,
        positional=bound.args,
        named=bound.kwargs,
    )


def run_command(
    aggregate: Aggregate,
    call: Call,
    types: EventTypes,
    *,
    stream: str,
    new_id: Callable[[], str],
) -> Iterator[NewEvent]:
    """The events of a command, each folded into the aggregate before the command goes on."""
    steps = getattr(aggregate, call.command)(*call.positional, **call.named)
    try:
        for number, found in enumerate(steps, 1):
            if number > EVENTS_PER_COMMAND_MAX:
                limit = EVENTS_PER_COMMAND_MAX
                raise TooManyEvents(stream=stream, command=call.command, limit=limit)
            if type(found) not in types:
                _refuse(aggregate, found)
            new, read = types.encode(found, stream=stream, event_id=new_id())
            fold(aggregate, read, version=aggregate.version + 1, stream=stream)
            yield new
    finally:
        steps.close()


def _refuse(aggregate: Aggregate, found: object) -> NoReturn:
    if facts_of(type(found)) is None:
        raise NotAnEvent(found=found)
    raise NotItsEvent(aggregate=aggregate.__plan__.name, event=type(found).__name__)
