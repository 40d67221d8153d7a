"""An event as it is kept: one record of the events topic, and the chain that makes it evident
when one was changed. Pure: bytes in, values out (docs/formats/events.md).

The value of a record is one line of JSON whose last member is its hash:

    {"seq":17,"stream":"Account:alice","version":3,"type":"Deposited","type_version":1,
     "id":"0193...","at":"2026-11-18T01:00:00.000000Z","data":{"amount":5},"tags":[],
     "command":{"id":"req-1","print":"9f86d081"},"meta":{"by":"ada"},"hash":"<64 hex digits>"}

    hash = SHA-256(hash of the stream's event before, 32 bytes, zeros for its first
                   | the value's bytes up to the comma before "hash")

So a reader needs no canonical form: it hashes the bytes that it was given. `seq` is dense in the
partition, `version` in the stream, both from 1: offsets are neither, as markers take some.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from millstream.base.errors import Corrupt

NO_HASH: Final = bytes(32)
HASH_HEAD: Final = b',"hash":"'
HASH_TAIL: Final = b'"}'
EMPTY_TAIL_BYTES: Final = len(HASH_HEAD) + len(HASH_TAIL)
TAIL_BYTES: Final = len(HASH_HEAD) + 64 + len(HASH_TAIL)
# Of a command: 16 hexadecimal digits, or, if a key has made it, `keyed:<which>:` and such digits.
KEYED_PRINT: Final = "keyed:"
PRINT_LENGTH: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What an event came of: its id makes a retry a no-op, its print tells other arguments."""

    id: str
    print: str = ""


def are_different(one: str, other: str) -> bool:
    """Whether two prints are certainly of different commands. Those of two keys, or of a key and
    of none, cannot be compared: the next erasure destroys a key, and then nobody knows."""
    return one != other and _key_of_print(one) == _key_of_print(other)


def _key_of_print(print: str) -> str:
    return print.split(":")[1] if print.startswith(KEYED_PRINT) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """A fact that is not stored yet. `data` is a JSON object. `stream`: of another stream of the
    partition than the one that is decided on."""

    type: str
    data: bytes
    type_version: int = 1
    tags: tuple[str, ...] = ()
    id: str | None = None
    stream: str | None = None


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A fact, as it was stored. `data` is a JSON object, not looked into."""

    seq: int
    stream: str
    version: int
    type: str
    type_version: int
    id: str
    at: datetime
    data: msgspec.Raw
    tags: tuple[str, ...] = ()
    command: Command | None = None
    meta: Mapping[str, Any] = {}
    hash: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where the events of a command are. As a `view.get(..., after=receipt)` it names the last one.

    `version` is the stream's after them, `seq` the partition's. `is_repeat`: they were there
    already, under the same command id; `events` has those that retention has left.
    """

    topic: str
    partition: int
    offset: int
    stream: str
    version: int
    seq: int
    events: tuple[str, ...] = ()
    is_repeat: bool = False


class BrokenChain(Corrupt):
    def __init__(self, *, stream: str, version: int, reason: str) -> None:
        super().__init__(
            f"stream {stream}, version {version}: {reason}. The record is not what was written "
            "there, or one before it is not"
        )
        self.stream, self.version, self.reason = stream, version, reason


class BadEventRecord(Corrupt):
    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(f"{place} is no event ({reason}): was it written by something else?")
        self.place, self.reason = place, reason


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StoredEvent).decode
# What a decoder raises for a record that is no event; the last one if it is too deep.
UNREADABLE = (msgspec.MsgspecError, TypeError, RecursionError)


def encode_event(event: StoredEvent, before: bytes) -> tuple[bytes, bytes]:
    """The record's value and the event's hash. `before`: the hash of the stream's last event."""
    bare = msgspec.structs.replace(event, hash="") if event.hash else event
    body = _encode(bare)[:-EMPTY_TAIL_BYTES]
    digest = sha256(before + body)
    return body + HASH_HEAD + digest.hexdigest().encode() + HASH_TAIL, digest.digest()


def decode_event(value: bytes, *, place: str) -> StoredEvent:
    """`place` is told if it is none: topic, partition and offset."""
    try:
        return _decode(value)
    except UNREADABLE as error:
        raise BadEventRecord(place=place, reason=str(error)) from None


def decode_events(values: Sequence[bytes], *, place: str) -> list[StoredEvent]:
    """As fast as it goes."""
    try:
        return list(map(_decode, values))
    except UNREADABLE:  # one of them is none: which, and why?
        return [decode_event(value, place=place) for value in values]


def hash_of(value: bytes, before: bytes) -> bytes:
    """What its hash must be, by its bytes."""
    return sha256(before + value[:-TAIL_BYTES]).digest()


def check_chain(values: Sequence[bytes], before: bytes, *, place: str) -> bytes:
    """The hash of the last one; raises BrokenChain at the first that does not follow."""
    for value in values:
        event = decode_event(value, place=place)
        found = hash_of(value, before)
        if found.hex() != event.hash:
            reason = "its hash is not that of its bytes and of the event before"
            raise BrokenChain(stream=event.stream, version=event.version, reason=reason)
        before = found
    return before
