"""What a job's value is in Python: JSON unless the queue says text or bytes.

Pure. Nothing is guessed from the bytes: a queue has one kind of values, for all who use it.
"""

import json
from typing import Any, Literal, TypeAlias

from millstream.base.errors import Rejected

ValueKind: TypeAlias = Literal["json", "text", "bytes"]
KINDS: tuple[ValueKind, ...] = ("json", "text", "bytes")


class BadValue(Rejected):
    def __init__(self, *, kind: str, reason: str) -> None:
        super().__init__(f"not a value of a queue of {kind}: {reason}")
        self.kind, self.reason = kind, reason


def value_to_bytes(value: Any, kind: ValueKind) -> bytes:
    if kind == "json":
        return _json_to_bytes(value)
    if kind == "text" and isinstance(value, str):
        return value.encode()
    if kind == "bytes" and isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadValue(kind=kind, reason=f"{type(value).__name__} was given")


def _json_to_bytes(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadValue(kind="json", reason=str(error)) from error


def value_from_bytes(data: bytes | None, kind: ValueKind) -> Any:
    """A record without a value is None in every kind."""
    if data is None or kind == "bytes":
        return data
    try:
        return json.loads(data) if kind == "json" else data.decode()
    except ValueError as error:
        raise BadValue(kind=kind, reason=str(error)) from error


def key_to_bytes(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
