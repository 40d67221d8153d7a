"""Seals values with the keys of their subjects, and opens them. Pure: keys are given.

A sealed value is a text, so that it travels as any other: JSON, Spark's STRING, a column.

    sealed:1:<key id>:<base64url, no padding: place (16) | nonce (12) | AES-256-GCM box>

    key id   <subject: 22 characters, HMAC>.<generation>; told by the text, bound by the box
    place    SHA-256 of stream, event id and field, cut: a value that was moved is noticed

The box holds the value as JSON, and blanks behind it up to a length that many values have: a flag
and a birthday are as long as each other. Its additional data are version, key id and place. Who
opens an event knows the place and compares it; who opens a row of a view does not, and gets the
value: so nothing that looks sealed is stored in a field that is not personal, and `reveal` can be
told which fields to open.
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from millstream.base.errors import Corrupt, Rejected
from millstream.eventsourcing.key_book import SubjectForgotten
from millstream.eventsourcing.personal import (
    FORGOTTEN,
    BadSubject,
    Forgotten,
    PersonalField,
    is_about_somebody,
    subject_in,
)
from millstream.eventsourcing.stored_event import KEYED_PRINT, PRINT_LENGTH

PREFIX: Final = "sealed:1:"
TAG_PREFIX: Final = "personal:"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
PLACE_BYTES: Final = 16
TAG_BYTES: Final = 16  # of AES-GCM
SUBJECT_HASH_BYTES: Final = 16  # two of a billion subjects are the same once in 10^20
TOKEN: Final = re.compile(r"sealed:1:([A-Za-z0-9_-]{22}\.[1-9][0-9]{0,8}):([A-Za-z0-9_-]+)")
PASSING_PREFIX: Final = "sealed-passing:1:"
WRAPPING_PREFIX: Final = "wrapping-"
PRINT_MARK_LENGTH: Final = 8  # of the 32 hexadecimal digits of a wrapping key's name
SNAPSHOT_PREFIX: Final = b"sealed-snapshot:1:"

# To this, and to its multiples: JSON of up to 62 letters, such as any flag, date, telephone number
# and most addresses of e-mail, is as long as any other.
PADDED_BYTES_MIN: Final = 64
BLANK: Final = b" "  # JSON may end with any number of them, and never does where we write it

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class SealBroken(Corrupt):
    """A sealed value that was changed, cut or moved."""

    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(
            f"{place}: the sealed value cannot be opened: {reason}. It is not what was written "
            "there; see what `millstream events verify` finds"
        )
        self.place, self.reason = place, reason


class NotSealable(Rejected):
    def __init__(self, *, field: str, reason: str) -> None:
        super().__init__(f"field {field}: {reason}")
        self.field, self.reason = field, reason


class BadFields(Rejected):
    def __init__(self, *, fields: object) -> None:
        super().__init__(f"fields={fields!r}: give the names of the fields, [{fields!r}]")
        self.fields = fields


class DataKey:
    """The key of one subject's data, until it is forgotten. Never printed."""

    __slots__ = ("_cipher", "id", "secret")

    def __init__(self, id: str, secret: bytes) -> None:
        self.id, self.secret = id, secret
        self._cipher = AESGCM(secret)

    def __repr__(self) -> str:
        return f"<DataKey {self.id}>"

    def seal(self, value: bytes, place: bytes) -> str:
        """`value`: JSON, as everywhere here."""
        nonce = os.urandom(NONCE_BYTES)
        box = self._cipher.encrypt(nonce, padded(value), self._bound(place))
        return f"{PREFIX}{self.id}:{to_text(place + nonce + box)}"

    def open(self, sealed: "Sealed") -> bytes:
        try:
            opened = self._cipher.decrypt(sealed.nonce, sealed.box, self._bound(sealed.place))
        except InvalidTag:
            raise SealBroken(place=self.id, reason="it was changed") from None
        return unpadded(opened)

    def _bound(self, place: bytes) -> bytes:
        return f"{PREFIX}{self.id}:".encode() + place


class Keys(Protocol):
    """Who has the keys: a keyring."""

    def key_for(self, subject: str) -> DataKey:
        """To seal with; made if the subject has none. SubjectForgotten if it must not."""

    def key_of(self, key_id: str) -> DataKey | None:
        """To open with; None if its subject was forgotten."""


class Sealed(NamedTuple):
    """A sealed value, taken apart."""

    key_id: str
    place: bytes
    nonce: bytes
    box: bytes


def padded(json: bytes) -> bytes:
    """With blanks behind it: the length of what is sealed tells little of it."""
    return json.ljust(padded_bytes(len(json)), BLANK)


def unpadded(json: bytes) -> bytes:
    """What was sealed before there was padding has none."""
    return json.rstrip(BLANK)


def padded_bytes(size: int) -> int:
    """The next multiple of 64; where it is more, that of Padme's step, which grows with the size
    (Nikitin and others, 2019): at most 12 % more bytes, and of 2^n bytes the length tells log n."""
    exponent = max(size, 2).bit_length() - 1
    step = max(PADDED_BYTES_MIN, 1 << max(0, exponent - exponent.bit_length()))
    return max(step, -(-size // step) * step)


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_text(text: str) -> bytes | None:
    """None unless it is what `to_text` gives: of two spellings of the same bytes, one is."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if to_text(data) == text else None


def is_sealed(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PREFIX)


def take_apart(text: str, *, place: str) -> Sealed:
    found = TOKEN.fullmatch(text)
    data = from_text(found[2]) if found else None
    if found is None or data is None or len(data) < PLACE_BYTES + NONCE_BYTES:
        raise SealBroken(place=place, reason="it is cut, or was changed")
    nonce_end = PLACE_BYTES + NONCE_BYTES
    return Sealed(found[1], data[:PLACE_BYTES], data[PLACE_BYTES:nonce_end], data[nonce_end:])


def place_of(stream: str, event_id: str, field: str) -> bytes:
    """Each with its length before it, so that no two places are spelled the same."""
    parts = [part.encode() for part in (stream, event_id, field)]
    told = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return sha256(told).digest()[:PLACE_BYTES]


def subject_hash(secret: bytes, subject: str) -> str:
    """What a subject is called where its id must not be read. Without the secret nobody can try
    out who it is."""
    digest = hmac.digest(secret, b"millstream subject\0" + subject.encode(), "sha256")
    return to_text(digest[:SUBJECT_HASH_BYTES])


def tag_of(hash: str) -> str:
    """The tag of every event with sealed values of this subject."""
    return TAG_PREFIX + hash


def subject_of_key(key_id: str) -> str:
    return key_id.rpartition(".")[0]


# --- events -----------------------------------------------------------------------------------


def seal_fields(
    data: Mapping[str, Any],
    fields: Iterable[PersonalField],
    keys: Keys,
    *,
    stream: str,
    event_id: str,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The data with its personal fields sealed, and the tags by which the event is found again.

    `data`: what JSON can hold. None is sealed as well, as it tells that there is no value; for who
    was forgotten, and where nobody is named, it stays None.
    """
    sealed, tags = dict(data), dict[str, None]()
    for field in fields:
        value = data.get(field.name)
        if isinstance(value, Forgotten):
            reason = "its value was forgotten, and cannot be stored again"
            raise NotSealable(field=field.name, reason=reason)
        key = _key_for(field, data, keys, stream)
        if key is not None:
            place = place_of(stream, event_id, field.name)
            sealed[field.name] = key.seal(_encode(value), place)
            tags[tag_of(subject_of_key(key.id))] = None
    personal = {field.name for field in fields}
    check_plain({name: value for name, value in data.items() if name not in personal})
    return sealed, tuple(tags)


def _key_for(
    field: PersonalField, data: Mapping[str, Any], keys: Keys, stream: str
) -> DataKey | None:
    """None: there is nothing to seal."""
    if data.get(field.name) is not None:
        return keys.key_for(subject_in(field, data, stream))
    if field.name not in data or not is_about_somebody(field, data):
        return None
    try:
        return keys.key_for(subject_in(field, data, stream))
    except (SubjectForgotten, BadSubject):
        return None  # no value, of nobody for whom there can be a key


def check_plain(data: Mapping[str, Any]) -> None:
    """A sealed value in a field that is not personal could not be opened there, as it was moved."""
    for name, value in data.items():
        if _holds_sealed(value):
            reason = "it holds a sealed value: app.reveal it first, and mark the field Personal"
            raise NotSealable(field=name, reason=reason)


def _holds_sealed(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_sealed(one) for one in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_sealed(one) for one in value)
    return is_sealed(value)


def open_fields(
    data: Mapping[str, Any], keys: Keys, *, stream: str, event_id: str
) -> tuple[dict[str, Any], frozenset[str]]:
    """The data with its sealed fields opened, or FORGOTTEN; and the ids of the keys that did it."""
    opened, used = dict(data), set[str]()
    for name, value in data.items():
        if is_sealed(value):
            place = f"stream {stream}, event {event_id}, field {name}"
            sealed = take_apart(value, place=place)
            if sealed.place != place_of(stream, event_id, name):
                raise SealBroken(place=place, reason="it was sealed for another place")
            opened[name] = _opened(sealed, keys, place=place)
            if opened[name] is not FORGOTTEN:
                used.add(sealed.key_id)
    return opened, frozenset(used)


def _opened(sealed: Sealed, keys: Keys, *, place: str) -> Any:
    key = keys.key_of(sealed.key_id)
    if key is None:
        return FORGOTTEN
    try:
        return _decode(key.open(sealed))
    except SealBroken as error:
        raise SealBroken(place=place, reason=error.reason) from None


# --- rows and values --------------------------------------------------------------------------


def reveal(value: Any, keys: Keys, *, fields: Collection[str] | None = None) -> Any:
    """The same with every sealed text in it opened, or FORGOTTEN: in mappings, lists and tuples.

    `fields`: only in these of a row, or of each row of a list. A text is not bound to the row that
    it is found in: of rows that others may write to, name the fields that are personal.
    """
    if isinstance(fields, str):
        raise BadFields(fields=fields)
    if is_sealed(value):
        return value if fields is not None else _revealed(value, keys)
    if isinstance(value, Mapping):
        return {name: _revealed_in(name, one, keys, fields) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named one
        named = zip(value._fields, value, strict=True)
        return type(value)(*(_revealed_in(name, one, keys, fields) for name, one in named))
    if isinstance(value, list | tuple):
        return type(value)(reveal(one, keys, fields=fields) for one in value)
    return value


def _revealed_in(name: Any, value: Any, keys: Keys, fields: Collection[str] | None) -> Any:
    return reveal(value, keys) if fields is None or name in fields else value


def _revealed(text: str, keys: Keys) -> Any:
    """What is no sealed value, though it begins as one, is a text that somebody wrote."""
    try:
        sealed = take_apart(text, place="a sealed value")
    except SealBroken:
        return text
    return _opened(sealed, keys, place="a sealed value")


# --- snapshots --------------------------------------------------------------------------------


def seal_snapshot(state: bytes, key_ids: Iterable[str], keys: Keys, *, place: str) -> bytes | None:
    """A state, sealed by the keys of all subjects in it: without any one of them it stays closed.

    None if one of them is gone by now: the state must not be kept. `place`: the stream and version
    that it is of. A state without subjects is as it was.
    """
    ids = sorted(set(key_ids))
    if not ids:
        return state
    key = _joint_key(ids, keys)
    if key is None:
        return None
    head = SNAPSHOT_PREFIX + ",".join(ids).encode() + b":"
    nonce = os.urandom(NONCE_BYTES)
    return head + nonce + AESGCM(key).encrypt(nonce, padded(state), head + place.encode())


def open_snapshot(sealed: bytes, keys: Keys, *, place: str) -> bytes | None:
    """None if one of its subjects was forgotten: discard it, and make another of the events."""
    if not sealed.startswith(SNAPSHOT_PREFIX):
        return sealed
    told, colon, box = sealed[len(SNAPSHOT_PREFIX) :].partition(b":")
    key = _joint_key(told.decode(errors="replace").split(","), keys)
    if key is None:
        return None
    head = SNAPSHOT_PREFIX + told + colon
    try:
        nonce, rest = box[:NONCE_BYTES], box[NONCE_BYTES:]
        return unpadded(AESGCM(key).decrypt(nonce, rest, head + place.encode()))
    except (InvalidTag, ValueError):
        raise SealBroken(place=f"snapshot of {place}", reason="it was changed") from None


def _joint_key(key_ids: list[str], keys: Keys) -> bytes | None:
    found = [keys.key_of(key_id) for key_id in key_ids]
    secrets = [key.secret for key in found if key is not None]
    if len(secrets) < len(found):
        return None
    told = b"millstream snapshot 1:" + ",".join(key_ids).encode()
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=told).derive(b"".join(secrets))


# --- keys in keys -----------------------------------------------------------------------------


def wrap_key(secret: bytes, key_id: str, wrapping: AESGCM, wrapping_id: str) -> str:
    nonce = os.urandom(NONCE_BYTES)
    return to_text(nonce + wrapping.encrypt(nonce, secret, _bound_key(key_id, wrapping_id)))


def unwrap_key(wrapped: str, key_id: str, wrapping: AESGCM, wrapping_id: str) -> bytes:
    data = from_text(wrapped) or b""
    nonce, box = data[:NONCE_BYTES], data[NONCE_BYTES:]
    try:
        return wrapping.decrypt(nonce, box, _bound_key(key_id, wrapping_id))
    except (InvalidTag, ValueError):
        reason = f"it was changed, or {wrapping_id} is not the key that wrapped it"
        raise SealBroken(place=f"key {key_id}", reason=reason) from None


def seal_passing(data: bytes, wrapping: AESGCM, wrapping_id: str, *, place: str) -> str:
    """With a wrapping key itself: closed for good by the next erasure."""
    nonce = os.urandom(NONCE_BYTES)
    box = wrapping.encrypt(nonce, padded(data), _bound_passing(wrapping_id, place))
    return f"{PASSING_PREFIX}{wrapping_id}:{to_text(nonce + box)}"


def wrapping_of(text: str) -> str:
    """The name of the wrapping key that sealed it."""
    return text.removeprefix(PASSING_PREFIX).partition(":")[0]


def open_passing(text: str, wrapping: AESGCM, *, place: str) -> bytes:
    name, _, told = text.removeprefix(PASSING_PREFIX).partition(":")
    data = from_text(told) or b""
    try:
        nonce, box = data[:NONCE_BYTES], data[NONCE_BYTES:]
        return unpadded(wrapping.decrypt(nonce, box, _bound_passing(name, place)))
    except (InvalidTag, ValueError):
        raise SealBroken(place=place, reason="it was changed or moved") from None


def print_key(wrapping: bytes) -> bytes:
    """What prints are made with: it is gone when the wrapping key is."""
    info = b"millstream print 1"
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(wrapping)


def keyed_print(data: bytes, key: bytes, wrapping_id: str) -> str:
    """It says which key made it: prints of two keys cannot be compared (`are_different`)."""
    mark = wrapping_id.removeprefix(WRAPPING_PREFIX)[:PRINT_MARK_LENGTH]
    return f"{KEYED_PRINT}{mark}:{hmac.digest(key, data, 'sha256').hex()[:PRINT_LENGTH]}"


def _bound_passing(wrapping_id: str, place: str) -> bytes:
    return f"millstream passing 1:{wrapping_id}:{place}".encode()


def _bound_key(key_id: str, wrapping_id: str) -> bytes:
    return f"millstream key 1:{key_id}:{wrapping_id}".encode()
