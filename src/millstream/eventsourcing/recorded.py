"""What a recorder of the `eventsourcing` library keeps in an event of ours. Pure.

The library numbers the events of an aggregate itself, from 0 or 1 or anywhere, and its state is
bytes. So the data of an event is

    {"version":3,"order":"dense","state":{"amount":5}}      state that is JSON stays readable
    {"version":3,"order":"rising","base64":"3q2+7w=="}      other bytes: ciphers, compression

`order` tells what is known of the numbers up to here without reading what was before: `dense`, each
one above the last; `rising`; or `mixed`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from millstream.eventsourcing.stored_event import StoredEvent

Order = Literal["dense", "rising", "mixed"]
TRACKING_PREFIX: Final = "$tracking:"
TRACKING_TYPE: Final = "$tracking"
DCB_STREAM: Final = "$dcb"


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`state` or `base64`, whichever the bytes were."""

    version: int = 0
    order: Order = "mixed"
    state: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET

    @property
    def bytes(self) -> bytes:
        if isinstance(self.state, msgspec.Raw):
            return bytes(self.state)
        return self.base64 if isinstance(self.base64, bytes) else b""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Recorded).decode


def encode_recorded(state: bytes, *, version: int = 0, order: Order = "mixed") -> bytes:
    if _is_one_line_of_json(state):
        found = Recorded(version=version, order=order, state=msgspec.Raw(state))
    else:
        found = Recorded(version=version, order=order, base64=state)
    return _encode(found)


def decode_recorded(event: StoredEvent) -> Recorded:
    return _decode(event.data)


def _is_one_line_of_json(state: bytes) -> bool:
    """So that the same bytes come back: blanks around a value are lost."""
    if not state or state != state.strip() or b"\n" in state or b"\r" in state:
        return False
    try:
        msgspec.json.decode(state)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Which numbers the first `count` events of a stream have, as far as it is known.

    `taken` is asked for only where the order is mixed: then it has all of them.
    """

    count: int = 0
    last: int = -1
    order: Order = "dense"
    taken: frozenset[int] = frozenset()

    @property
    def first(self) -> int:
        """Of a dense order."""
        return self.last - self.count + 1

    def needs_all(self, version: int) -> bool:
        """Whether `has` cannot tell without having seen each one."""
        if self.order == "mixed":
            return len(self.taken) != self.count
        return self.order == "rising" and version <= self.last and len(self.taken) != self.count

    def has(self, version: int) -> bool:
        if self.order == "dense":
            return self.count > 0 and self.first <= version <= self.last
        return version in self.taken

    def with_next(self, version: int) -> "Numbers":
        order = self._order_with(version)
        before = frozenset() if order == "dense" else self._listed()
        is_whole = order != "dense" and len(before) == self.count
        taken = before | {version} if is_whole else frozenset()
        return Numbers(count=self.count + 1, last=version, order=order, taken=taken)

    def _listed(self) -> frozenset[int]:
        """A dense order is known by its ends; any other by each number."""
        if self.order == "dense":
            return frozenset(range(self.first, self.last + 1))
        return self.taken

    def _order_with(self, version: int) -> Order:
        if self.count == 0:
            return "dense"
        if self.order != "mixed" and version > self.last:
            return "dense" if self.order == "dense" and version == self.last + 1 else "rising"
        return "mixed"


def numbers_by_last(event: StoredEvent) -> Numbers:
    """What the last event of a stream tells of all."""
    found = decode_recorded(event)
    return Numbers(count=event.version, last=found.version, order=found.order)


def numbers_of(events: Iterable[StoredEvent]) -> Numbers:
    """By looking at every one."""
    found = [(event.version, decode_recorded(event)) for event in events]
    count, last = (found[-1][0], found[-1][1]) if found else (0, Recorded(version=-1))
    taken = frozenset(recorded.version for _, recorded in found)
    order = last.order if found else "dense"
    return Numbers(count=count, last=last.version, order=order, taken=taken)
