"""The arguments of a command on their way over a topic: to JSON, and back to what its parameters
say they are. Pure."""

import inspect
import typing
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from types import GenericAlias
from typing import Any, cast

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.aggregate_plan import Plan
from millstream.eventsourcing.command_calls import BadArguments, Call, UnknownCommand, call_of
from millstream.eventsourcing.untold import reason_of


class ArgumentNotJson(Rejected):
    def __init__(self, *, command: str, argument: str, reason: str) -> None:
        super().__init__(
            f"{command}: argument {argument} cannot be sent as JSON ({reason}). Give what JSON "
            "has, a time, a Decimal, a UUID or a dataclass of such"
        )
        self.command, self.argument, self.reason = command, argument, reason


_encode = msgspec.json.Encoder().encode


def encode_arguments(call: Call) -> dict[str, msgspec.Raw]:
    """By name: numbers, texts, times, dataclasses, lists of them."""
    found = {}
    for name, value in call.arguments.items():
        try:
            found[name] = msgspec.Raw(_encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentNotJson(command=call.command, argument=name, reason=str(error)) from None
    return found


def call_from(kind: type[Aggregate], command: str, sent: Mapping[str, msgspec.Raw]) -> Call:
    """Raises UnknownCommand or BadArguments."""
    plan = kind.__plan__
    signature = plan.commands.get(command)
    if signature is None:
        raise UnknownCommand(aggregate=plan.name, command=command, known=plan.commands)
    if unknown := sent.keys() - signature.parameters.keys():
        reason = f"it has no parameter {min(unknown)!r}"
        raise BadArguments(aggregate=plan.name, command=command, reason=reason)
    types = _types_of(cast(Any, kind), command)
    values = OrderedDict(
        (name, _decoded(plan, command, name, sent[name], types[name]))
        for name in signature.parameters
        if name in sent
    )
    bound = inspect.BoundArguments(signature, values)
    return call_of(plan, command, bound.args, bound.kwargs)


def _decoded(plan: Plan, command: str, name: str, value: msgspec.Raw, wanted: Any) -> Any:
    try:
        return msgspec.json.decode(value, type=wanted)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"{name}: {reason_of(error, is_personal=plan.has_personal)}"
        raise BadArguments(aggregate=plan.name, command=command, reason=reason) from None


@lru_cache(1_000)
def _types_of(kind: Any, command: str) -> dict[str, Any]:
    """What is not annotated, or by what JSON cannot be made into, is taken as it comes."""
    method = getattr(kind, command)
    hints = _hints_of(method)
    found = {}
    for parameter in kind.__plan__.commands[command].parameters.values():
        hint = hints.get(parameter.name, Any)
        is_many = parameter.kind is parameter.VAR_POSITIONAL
        found[parameter.name] = _decodable(GenericAlias(tuple, (hint, ...)) if is_many else hint)
    return found


def _hints_of(method: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(method)
    except Exception:  # names that only a type checker knows
        return {}


def _decodable(hint: Any) -> Any:
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return Any
    return hint
