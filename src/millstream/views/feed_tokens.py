"""Where a subscriber is in the changes of a view, as a text that it can bring back. Pure.

A token is opaque: base64 of the following, big-endian.

  format    uint8    1
  timeline  8 bytes  whose changes are counted: of one generation, in one file
  seq       uint64   the last change that the subscriber has
  check     7 bytes  BLAKE2b of view, conditions and all of the above

The check finds what is mangled, or of another view or query; it keeps no secret.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import Rejected

FORMAT = 1
BODY = struct.Struct(">B8sQ")
CHECK_BYTES = 7
TOKEN_CHARACTERS = (BODY.size + CHECK_BYTES) * 4 // 3


class BadToken(Rejected):
    def __init__(self, *, view: str, token: object) -> None:
        shown = str(token)[: TOKEN_CHARACTERS + 1]
        super().__init__(
            f"{shown!r} is no token of a feed of view {view} with these conditions: give one as it "
            "came, with the same `where`, or none to start with the current rows"
        )
        self.view, self.token = view, token


@dataclass(frozen=True, slots=True)
class Place:
    """After change `seq` of a timeline, which is named by 16 hexadecimal digits."""

    timeline: str
    seq: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Those of one query: a view's name, and what is asked of its rows."""

    view: str
    query: str

    def write(self, place: Place) -> str:
        body = BODY.pack(FORMAT, bytes.fromhex(place.timeline), place.seq)
        return base64.urlsafe_b64encode(body + self._check(body)).decode()

    def read(self, token: str) -> Place:
        try:
            found = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
        except (AttributeError, UnicodeEncodeError, binascii.Error):
            raise BadToken(view=self.view, token=token) from None
        body, check = found[: BODY.size], found[BODY.size :]
        if len(body) != BODY.size or check != self._check(body) or body[0] != FORMAT:
            raise BadToken(view=self.view, token=token)
        _, timeline, seq = BODY.unpack(body)
        return Place(timeline.hex(), seq)

    def _check(self, body: bytes) -> bytes:
        asked = repr((self.view, self.query)).encode()
        return hashlib.blake2b(asked + body, digest_size=CHECK_BYTES).digest()


def tokens_of(view: str, where: Mapping[str, Any] | None) -> Tokens:
    asked = sorted((where or {}).items(), key=lambda item: item[0])
    return Tokens(view, repr([(text, _told(text, value)) for text, value in asked]))


def _told(text: str, value: Any) -> Any:
    """The same in every process: the values of an `in` have no order, and a set has any."""
    is_one_value = isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)
    if is_one_value or text.lower().split()[-1:] != ["in"]:
        return value
    return sorted({repr(one) for one in value})
