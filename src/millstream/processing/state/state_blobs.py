"""What operators keep as one blob for each key, made readable. Pure.

A blob is a pickle of plain values (plain_pickles.py). What is anything else is shown by its size.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from millstream.processing.state.plain_pickles import NotPlainState, load_plain

PICKLE_START, PICKLE_END = b"\x80", b"."


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
            return readable(load_plain(blob))
        except NotPlainState:
            return f"<{len(blob)} bytes>"
    try:
        return blob.decode()
    except UnicodeDecodeError:
        return f"<{len(blob)} bytes>"


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(readable(key))
