"""Pickles of plain values, as operators keep them in their state: read without running anything.

A pickle may name any function to be called, so one of a checkpoint that came from elsewhere (a
copy, a back-up, another machine) could run code here. Only plain types are made of it, those that
Spark and Arrow give for columns, and our own tuples and dataclasses; what names anything else is
refused.
"""

import dataclasses
import io
import pickle
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from millstream.base.errors import Corrupt

PROTOCOL: Final = 5
PLAIN_TYPES: Final = {
    "builtins": {"tuple", "set", "frozenset", "bytearray"},
    "collections": {"OrderedDict", "deque", "defaultdict", "Counter"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "uuid": {"UUID"},
    "zoneinfo": {"ZoneInfo"},
    # Columns of the types STRUCT and VARIANT.
    "pyspark.sql.types": {"Row", "_create_row", "VariantVal"},
    "pytz": {"_UTC", "_p"},  # time zones of older versions of Arrow
}
OURS: Final = "millstream.processing."
IMMUTABLE: Final = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
NOT_IN_VARS: Final = ("__bases__", "__name__", "__qualname__")


class NotPlainState(Corrupt):
    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"a value of this state is not one that a job of Millstream keeps ({reason}); nothing "
            "of it was run. Do not use this checkpoint: restore another copy of the job, or "
            "rebuild it (millstream run --rebuild JOB)"
        )
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.reason,)  # it comes out of a worker of Spark


def _again(reason: str) -> NotPlainState:
    return NotPlainState(reason=reason)


class PlainUnpickler(pickle.Unpickler):
    """A pickle may also set attributes (BUILD), and so of the very types that it names:
    `require_unchanged` takes that back."""

    def __init__(self, blob: bytes) -> None:
        super().__init__(io.BytesIO(blob))
        self._given: list[tuple[type, dict[str, Any]]] = []

    def find_class(self, module: str, name: str) -> Any:
        found = self._plain(module, name)
        if isinstance(found, type):
            if not found.__flags__ & IMMUTABLE:
                self._given.append((found, _facts_of(found)))
            return found
        return partial(found)  # attributes are set of this, then, and of no function of a module

    def _plain(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _method_of_zones
        if (module, name) == ("copyreg", "_reconstructor"):
            return _row_without_names
        if name in PLAIN_TYPES.get(module, ()):
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.startswith(OURS) else None
        if (
            isinstance(found, type)
            and (dataclasses.is_dataclass(found) or issubclass(found, tuple))
            and (found.__module__, found.__qualname__) == (module, name)  # not through a module
        ):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain type")

    def require_unchanged(self) -> None:
        changed = [kind for kind, before in reversed(self._given) if _put_back(kind, before)]
        if changed:
            raise pickle.UnpicklingError(f"it changes {changed[0].__qualname__}")


def _facts_of(kind: type) -> dict[str, Any]:
    return {**vars(kind), **{name: getattr(kind, name) for name in NOT_IN_VARS}}


def _put_back(kind: type, before: dict[str, Any]) -> bool:
    """Whether there was something."""
    now = _facts_of(kind)
    added = now.keys() - before.keys()
    for name in added:
        type.__delattr__(kind, name)
    changed = [name for name in before if name not in now or now[name] is not before[name]]
    for name in changed:
        type.__setattr__(kind, name, before[name])
    return bool(added or changed)


def _method_of_zones(owner: Any, name: str) -> Any:
    """What a moment with a time zone asks for, and nothing else."""
    if owner is ZoneInfo and name == "_unpickle":
        return getattr(owner, name)
    raise pickle.UnpicklingError(f"{name} of {owner!r} is not for plain values")


def _row_without_names(kind: type, base: type, values: tuple[Any, ...]) -> Any:
    """What one of Spark's rows asks for if its fields have no names, and nothing else."""
    if (kind.__module__, kind.__qualname__, base) != ("pyspark.sql.types", "Row", tuple):
        raise pickle.UnpicklingError(f"{kind!r} is not made of plain values")
    return tuple.__new__(kind, values)


def dump_plain(value: Any) -> bytes:
    return pickle.dumps(value, PROTOCOL)


def load_plain(blob: bytes) -> Any:
    """Raises NotPlainState, also for what is damaged."""
    reading = PlainUnpickler(blob)
    try:
        try:
            return reading.load()
        finally:
            reading.require_unchanged()
    except Exception as error:  # whatever a blob that is none raises
        raise NotPlainState(reason=f"{type(error).__name__}: {error}") from None
