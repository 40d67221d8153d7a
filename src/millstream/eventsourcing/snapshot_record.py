"""A snapshot as it is kept: the state of a stream at a version, in JSON. Pure.

    key    the stream
    value  {"stream":"Account:alice","version":300,"event":"0193...","fold":"<32 hex digits>",
            "state":{"balance":70},"check":"<32 hex digits>"}

`event` is the id of the last event in it, `fold` the print of what made it (`fold_print.py`).
`check` is the start of SHA-256 over all bytes before it. With personal data in it, `state` is null
and `sealed` has it, which the keys named in `keys` open (docs/formats/snapshots.md).

A state is only kept if it comes back exactly, types and all: what JSON cannot say (a set, a
Decimal) needs its type declared, `seen: set[str] = set()`. Otherwise it is made of events each
time, which is slower, and never wrong.
"""

import base64
import contextlib
import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime, time
from decimal import Decimal
from hashlib import sha256
from typing import Any, ClassVar, Final, get_origin, get_type_hints

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.untold import reason_of

CHECK_HEAD: Final = b',"check":"'
CHECK_LENGTH: Final = 32
TAIL_BYTES: Final = len(CHECK_HEAD) + CHECK_LENGTH + len(b'"}')
# Else it is larger than what brokers take.
SNAPSHOT_BYTES_MAX = 900_000
NOTHING: Final = msgspec.Raw(b"null")


class NotKept(Rejected):
    """A state that cannot be a snapshot."""

    def __init__(self, *, aggregate: str, reason: str) -> None:
        super().__init__(
            f"no snapshots of {aggregate}: {reason}. Its state is made of all its events each time"
        )
        self.aggregate, self.reason = aggregate, reason


class BadSnapshot(Rejected):
    """Of no use, and of no harm: the events are there."""

    def __init__(self, *, stream: str, reason: str) -> None:
        super().__init__(f"the snapshot of stream {stream} is passed over: {reason}")
        self.stream, self.reason = stream, reason


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    version: int
    event: str
    fold: str
    state: msgspec.Raw = NOTHING
    sealed: str | None = None
    keys: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Snapshot).decode


def encode_snapshot(snapshot: Snapshot) -> bytes:
    body = _encode(snapshot)[:-1]
    return body + CHECK_HEAD + _check(body) + b'"}'


def decode_snapshot(value: bytes, *, stream: str) -> Snapshot:
    if value[-TAIL_BYTES:] != CHECK_HEAD + _check(value[:-TAIL_BYTES]) + b'"}':
        raise BadSnapshot(stream=stream, reason="it is damaged (its check does not match)")
    try:
        found = _decode(value)
    except msgspec.MsgspecError as error:
        raise BadSnapshot(stream=stream, reason=f"it is none ({error})") from None
    if found.stream != stream:
        raise BadSnapshot(stream=stream, reason=f"it is that of {found.stream}")
    return found


def _check(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:CHECK_LENGTH].encode()


def to_sealed(box: bytes) -> str:
    return base64.b64encode(box).decode()


def from_sealed(text: str, *, stream: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BadSnapshot(stream=stream, reason="it is not sealed as it should be") from None


# --- the state --------------------------------------------------------------------------------


class StateCodec:
    """The state of one kind of aggregate, by the types that its class declares."""

    def __init__(self, kind: type[Aggregate]) -> None:
        self._aggregate, self._is_personal = kind.__plan__.name, kind.__plan__.has_personal
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._untyped: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
        self._split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        for name, hint in _hints(kind).items():
            self._declare(name, hint)

    def _declare(self, name: str, hint: Any) -> None:
        # Of a type that JSON does not say there is none: the comparison finds it out.
        with contextlib.suppress(TypeError, NameError):
            self._decoders[name] = msgspec.json.Decoder(hint)

    def encode(self, aggregate: Aggregate) -> bytes:
        """Raises NotKept if it would not come back as it is."""
        state = vars(aggregate)
        try:
            encoded = _encode(state)
            found = self.decode(encoded)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            reason = reason_of(error, is_personal=self._is_personal)
            raise NotKept(aggregate=self._aggregate, reason=reason) from None
        if len(encoded) > SNAPSHOT_BYTES_MAX:
            reason = f"its state has {len(encoded):,} bytes, of {SNAPSHOT_BYTES_MAX:,}"
            raise NotKept(aggregate=self._aggregate, reason=reason)
        seen: set[int] = set()
        for name, value in state.items():
            if not is_same(value, found[name], seen):
                reason = f"`{name}` would not come back as it is: declare its type, {name}: ..."
                raise NotKept(aggregate=self._aggregate, reason=reason)
        return encoded

    def decode(self, encoded: bytes | msgspec.Raw) -> dict[str, Any]:
        parts = self._split(encoded)
        return {
            name: self._decoders.get(name, self._untyped).decode(part)
            for name, part in parts.items()
        }


def _hints(kind: type) -> Mapping[str, Any]:
    try:
        found = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return {}
    return {
        name: hint
        for name, hint in found.items()
        if get_origin(hint) is not ClassVar and not name.startswith("__")
    }


def is_same(one: Any, other: Any, seen: set[int]) -> bool:
    """Equal, with the same types all the way down; and nothing in it is there twice, because two
    names for one list are two lists when they come back."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | dict | set | bytearray) or dataclasses.is_dataclass(one):
        if id(one) in seen:
            return False
        seen.add(id(one))
    match one:
        case dict():
            return _is_same_list(list(one), list(other), seen) and _is_same_list(
                list(one.values()), list(other.values()), seen
            )
        case list() | tuple():
            return _is_same_list(one, other, seen)
        case set() | frozenset():
            return {(type(part), part) for part in one} == {(type(part), part) for part in other}
        case float():
            return one == other and math.copysign(1, one) == math.copysign(1, other)
        case Decimal():
            return str(one) == str(other)
        case datetime() | time():
            return bool(one == other and one.tzinfo == other.tzinfo)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        mine, theirs = ([getattr(each, name) for name in names] for each in (one, other))
        return _is_same_list(mine, theirs, seen)
    return bool(one == other)


def _is_same_list(ones: Any, others: Any, seen: set[int]) -> bool:
    return len(ones) == len(others) and all(
        is_same(one, other, seen) for one, other in zip(ones, others, strict=True)
    )
