"""Whether a fold is still the one that made a snapshot: a print of all that it does. Pure.

Of an aggregate: its name, its initial state, the code of every method that is no command (an `on_`
method may call others), with the functions and constants of modules that they name; of each event:
name, version, fields, methods, and the code of its upcasts. What is called by other ways is not
seen: then say another `snapshot_version`. A print that changes too often only costs a replay.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.declared_event import facts_of

PRINT_LENGTH = 32
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
CONSTANTS = (type(None), bool, int, float, str, bytes, tuple, frozenset)


def fold_print(kind: type[Aggregate]) -> str:
    told = "\n".join(_told(kind))
    return sha256(told.encode(errors="surrogatepass")).hexdigest()[:PRINT_LENGTH]


def _told(kind: type[Aggregate]) -> Iterator[str]:
    plan = kind.__plan__
    seen: set[CodeType] = set()
    yield f"{plan.name} {plan.snapshot_version}"
    yield from (f"{name}={_constant(value)}" for name, value in sorted(plan.initial.items()))
    yield from _methods(kind, Aggregate, seen, without=plan.commands)
    for event in sorted(plan.kinds, key=lambda one: one.__name__):
        yield from _event(event, seen)


def _event(event: type, seen: set[CodeType]) -> Iterator[str]:
    facts = facts_of(event)
    assert facts is not None
    yield f"event {event.__name__} {facts.name} {facts.version} {facts.closes}"
    for field in dataclasses.fields(event):
        factory = getattr(field.default_factory, "__qualname__", "")
        yield f"{field.name}: {field.type} = {_constant(field.default)} {factory}"
    yield from _methods(event, object, seen)
    for version, step in sorted(facts.steps.items()):
        yield f"from {version}"
        yield from _callable(step, seen)


def _methods(
    kind: type, root: type, seen: set[CodeType], *, without: Iterable[str] = ()
) -> Iterator[str]:
    for owner in kind.__mro__:
        if owner in (root, object):
            break
        for name, member in sorted(vars(owner).items()):
            if name not in without and not name.startswith("__"):
                yield from _member(name, member, seen)


def _member(name: str, member: Any, seen: set[CodeType]) -> Iterator[str]:
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
    if isinstance(member, FunctionType):
        yield f"def {name}"
        yield from _callable(member, seen)


def _callable(function: Callable[..., Any], seen: set[CodeType]) -> Iterator[str]:
    if not isinstance(function, FunctionType):
        yield repr(getattr(function, "__qualname__", type(function)))
        return
    yield f"{_constant(function.__defaults__)} {_constant(function.__kwdefaults__)}"
    yield from _code(function.__code__, function.__globals__, seen)


def _code(code: CodeType, around: dict[str, Any], seen: set[CodeType]) -> Iterator[str]:
    """What it does, and what it names of its module, wherever that leads."""
    if code in seen:
        return
    seen.add(code)
    yield code.co_code.hex()
    yield f"{code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, around, seen)
        else:
            yield _constant(constant)
    for name in code.co_names:
        found = around.get(name)
        if isinstance(found, FunctionType):
            yield from _callable(found, seen)
        elif isinstance(found, CONSTANTS) and name in around:
            yield f"{name}={_constant(found)}"


def _constant(found: Any) -> str:
    """The same in every process: sets have no order of their own, and addresses say nothing."""
    if isinstance(found, set | frozenset):
        return repr(sorted(map(_constant, found)))
    if isinstance(found, tuple):
        return repr([_constant(one) for one in found])
    return ADDRESS.sub("", repr(found))
