"""What operators keep as one blob for each key, made readable. Pure.

A blob is a pickle of plain values. Only plain types and our own are made of it: a checkpoint from
elsewhere cannot run code here. What is anything else is shown by its size.
"""

import dataclasses
import io
import pickle
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

PICKLE_START, PICKLE_END = b"\x80", b"."
PLAIN_TYPES = {
    "builtins": {"set", "frozenset", "bytearray", "complex", "range", "slice"},
    "collections": {"OrderedDict", "deque", "defaultdict", "Counter"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "uuid": {"UUID"},
    "zoneinfo": {"ZoneInfo"},
}
OURS = "millstream.processing."


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _method_of_zones
        if name in PLAIN_TYPES.get(module, ()):
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.startswith(OURS) else None
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain type")


def _method_of_zones(owner: Any, name: str) -> Any:
    """What a moment with a time zone asks for, and nothing else."""
    if owner is ZoneInfo and name == "_unpickle":
        return getattr(owner, name)
    raise pickle.UnpicklingError(f"{name} of {owner!r} is not for plain values")


def readable(found: Any) -> Any:
    """A value of the state as JSON can show it."""
    match found:
        case bytes() | bytearray():
            return _readable_bytes(bytes(found))
        case Mapping():
            return {_text(key): readable(value) for key, value in found.items()}
        case list() | tuple() | set() | frozenset():
            return [readable(one) for one in found]
        case None | bool() | int() | float() | str():
            return found
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        fields = dataclasses.fields(found)
        return {one.name: readable(getattr(found, one.name)) for one in fields}
    return str(found)


def _readable_bytes(blob: bytes) -> Any:
    if blob.startswith(PICKLE_START) and blob.endswith(PICKLE_END):
        try:
            return readable(PlainUnpickler(io.BytesIO(blob)).load())
        except Exception:  # whatever a blob that is none raises
            return f"<{len(blob)} bytes>"
    try:
        return blob.decode()
    except UnicodeDecodeError:
        return f"<{len(blob)} bytes>"


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(readable(key))
