"""Whether a fold is still the one that made a snapshot: a print of all that it does. Pure.

Of an aggregate: its name, its initial state, the code of every method that is no command (an `on_`
method may call others), with all that they name: functions, classes, constants, and what is named
of modules, also of those that they import themselves; of each event: name, version, fields,
methods, and the code of its upcasts. Modules of Python and of installed packages are left out, and
what is called by other ways (getattr, eval, files) is not seen: then say another
`snapshot_version`. A print that changes too often only costs a replay.
"""

import contextlib
import dataclasses
import datetime
import decimal
import dis
import enum
import functools
import importlib
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from types import CodeType, FunctionType, ModuleType
from typing import Any

from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.declared_event import facts_of

PRINT_LENGTH = 32
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
CONSTANTS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    frozenset,
    set,
    list,
    dict,
    enum.Enum,
    decimal.Decimal,
    datetime.date,
    datetime.time,
    datetime.timedelta,
)
# Where the modules of Python and of installed packages are.
OTHERS = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
NOT_OWN = frozenset({"builtins", "millstream", *sys.stdlib_module_names})
Seen = set[object]


def fold_print(kind: type[Aggregate]) -> str:
    told = "\n".join(_told(kind))
    return sha256(told.encode(errors="surrogatepass")).hexdigest()[:PRINT_LENGTH]


def _told(kind: type[Aggregate]) -> Iterator[str]:
    plan = kind.__plan__
    seen: Seen = set()
    yield f"{plan.name} {plan.snapshot_version}"
    yield from (f"{name}={_constant(value)}" for name, value in sorted(plan.initial.items()))
    yield from _methods(kind, Aggregate, seen, without=plan.commands)
    for event in sorted(plan.kinds, key=lambda one: one.__name__):
        yield from _event(event, seen)


def _event(event: type, seen: Seen) -> Iterator[str]:
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


def _methods(kind: type, root: type, seen: Seen, *, without: Iterable[str] = ()) -> Iterator[str]:
    for owner in kind.__mro__:
        if owner in (root, object):
            break
        for name, member in sorted(vars(owner).items()):
            if name not in without and not name.startswith("__"):
                yield from _member(name, member, seen)


def _member(name: str, member: Any, seen: Seen) -> Iterator[str]:
    if isinstance(member, property):
        member = member.fget
    member = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
    if isinstance(member, FunctionType):
        yield f"def {name}"
        yield from _callable(member, seen)


def _callable(function: Callable[..., Any], seen: Seen) -> Iterator[str]:
    if not isinstance(function, FunctionType):
        yield repr(getattr(function, "__qualname__", type(function)))
        return
    yield f"{_constant(function.__defaults__)} {_constant(function.__kwdefaults__)}"
    around = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            around[name] = cell.cell_contents
    yield from _code(function.__code__, around, seen)


def _code(code: CodeType, around: dict[str, Any], seen: Seen) -> Iterator[str]:
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
    for name in (*code.co_names, *code.co_freevars):
        if name in around:
            yield from _named(name, around[name], code.co_names, seen)
    for module in _imported(code, around):
        yield from _module(module, code.co_names, seen)


def _named(name: str, found: Any, names: Iterable[str], seen: Seen) -> Iterator[str]:
    """What a name stands for; of a module, what else is named there."""
    if isinstance(found, functools.partial):
        yield f"{name}={_constant(found.args)} {_constant(found.keywords)}"
        found = found.func
    found = inspect.unwrap(found) if callable(found) and not isinstance(found, type) else found
    if isinstance(found, FunctionType):
        yield from _callable(found, seen)
    elif isinstance(found, ModuleType):
        yield from _module(found, names, seen)
    elif isinstance(found, type):
        yield from _class(found, seen)
    elif isinstance(found, CONSTANTS):
        yield f"{name}={_constant(found)}"
    elif _is_own(type(found).__module__):
        yield f"{name}={_constant(getattr(found, '__dict__', None))}"
        yield from _class(type(found), seen)


def _module(module: ModuleType, names: Iterable[str], seen: Seen) -> Iterator[str]:
    names = tuple(names)
    if (module, names) in seen or not _is_own(module.__name__):
        return
    seen.add((module, names))
    for name in names:
        if name in vars(module):
            yield from _named(name, vars(module)[name], names, seen)


def _class(kind: type, seen: Seen) -> Iterator[str]:
    if kind in seen or not _is_own(kind.__module__):
        return
    seen.add(kind)
    yield f"class {kind.__qualname__}"
    for owner in kind.__mro__:
        for name, member in sorted(vars(owner).items()) if _is_own(owner.__module__) else ():
            is_code = callable(member) or isinstance(member, property | classmethod | staticmethod)
            if is_code:
                yield from _member(name, member, seen)
            elif isinstance(member, CONSTANTS) and not name.startswith("__"):
                yield f"{name}={_constant(member)}"


@functools.cache
def _is_own(module: str) -> bool:
    """Whether it is of the application, and not of Python or an installed package."""
    if module.partition(".")[0] in NOT_OWN:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not str(file).startswith(OTHERS)


def _imported(code: CodeType, around: dict[str, Any]) -> Iterator[ModuleType]:
    """The modules that the code imports itself, when it runs: they are imported now."""
    found = list(dis.get_instructions(code))
    for number, one in enumerate(found):
        if one.opname != "IMPORT_NAME" or str(one.argval).partition(".")[0] in NOT_OWN:
            continue
        level = next((at.argval for at in found[max(0, number - 2) : number]), 0) or 0
        name = "." * level + str(one.argval) if isinstance(level, int) else str(one.argval)
        with contextlib.suppress(Exception):  # it is raised when the code runs
            yield importlib.import_module(name, around.get("__package__"))


def _constant(found: Any) -> str:
    """The same in every process: sets have no order of their own, and addresses say nothing."""
    if isinstance(found, set | frozenset):
        return repr(sorted(map(_constant, found)))
    if isinstance(found, tuple | list):
        return repr([_constant(one) for one in found])
    if isinstance(found, dict):
        return repr([(_constant(key), _constant(one)) for key, one in found.items()])
    return ADDRESS.sub("", repr(found))
