"""What the topic of keys says, and what to write into it next. Pure (docs/formats/keys.md).

    ring              {"current":"w3","coming":"","retiring":["w2"],"check":"..."}
    subject:<hash>    {"generation":1,"wrapping":"w3","key":"<the data key, wrapped>"}
                      {"generation":1,"forgotten":{"at":"...","by":"ada","why":"asked for it"}}

The newest record of a key counts. A *wrapping key* is known here by its name only: it is kept in a
key store, outside of the log. Each step of an erasure is a record here before or after it is done,
so that whoever comes next knows how far it is:

    announced   `coming` is the name of the next wrapping key, which is then made
    decided     the subjects are forgotten; `current` is the new one, `retiring` the ones before
    rewrapped   no data key is left that is wrapped by one of `retiring`
    destroyed   they are gone from the key store; `retiring` is empty
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from millstream.base.errors import Corrupt, Rejected

RING_KEY: Final = b"ring"
SUBJECT_PREFIX: Final = b"subject:"

Note = tuple[bytes, bytes]


class Remark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wanted it, when, and why."""

    at: datetime
    by: str = ""
    why: str = ""


class Ring(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which wrapping keys count. `check` tells whether a key store is the one that belongs here."""

    check: str
    current: str = ""
    coming: str = ""
    retiring: tuple[str, ...] = ()


class Subject(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`generation` counts the subject's keys: consent after an erasure gives it another one."""

    generation: int
    wrapping: str = ""
    key: str = ""
    forgotten: Remark | None = None
    consent: Remark | None = None


class BadKeyRecord(Corrupt):
    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is no record of a topic of keys ({reason}): was it written by something else?"
        )
        self.place, self.reason = place, reason


class SubjectForgotten(Rejected):
    """Nothing personal of this subject is stored any more, unless it is wanted anew."""

    def __init__(self, *, subject: str, at: datetime) -> None:
        super().__init__(
            f"subject {subject} was forgotten at {at:%Y-%m-%d %H:%M:%S}: nothing personal is "
            "stored for it until app.consent(...) says that it may be"
        )
        self.subject, self.at = subject, at


_encode = msgspec.json.Encoder().encode
_decode_subject = msgspec.json.Decoder(Subject).decode
_decode_ring = msgspec.json.Decoder(Ring).decode


class KeyBook:
    """All records that count, by the order of the topic. Subjects are parsed when they are asked
    for: there may be millions.

    `erasures` grows whenever a subject is forgotten: who keeps something that was opened compares
    it.
    """

    def __init__(self) -> None:
        self.ring: Ring | None = None
        self.erasures = 0
        self._subjects: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._subjects)

    def apply(self, key: bytes | None, value: bytes | None, *, place: str) -> None:
        try:
            self._apply(key or b"", value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadKeyRecord(place=place, reason=str(error)) from None

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if key == RING_KEY:
            self.ring = _decode_ring(value or b"")
        elif key.startswith(SUBJECT_PREFIX) and value is not None:
            hash = key[len(SUBJECT_PREFIX) :].decode()
            self._subjects[hash] = value
            if _decode_subject(value).forgotten is not None:
                self.erasures += 1
        else:
            raise msgspec.ValidationError(f"its key is {key!r}")

    def subject(self, hash: str) -> Subject | None:
        value = self._subjects.get(hash)
        return None if value is None else _decode_subject(value)

    def has_key(self, key_id: str) -> bool:
        hash, _, generation = key_id.rpartition(".")
        found = self.subject(hash)
        return found is not None and bool(found.key) and f"{found.generation}" == generation

    def subjects(self) -> Iterator[tuple[str, Subject]]:
        for hash, value in list(self._subjects.items()):
            yield hash, _decode_subject(value)

    def wrapped_otherwise(self) -> list[str]:
        """Whose key is not wrapped by the current wrapping key."""
        current = self.ring.current if self.ring else ""
        return [hash for hash, one in self.subjects() if one.key and one.wrapping != current]

    @property
    def is_unfinished(self) -> bool:
        """Whether an erasure was decided, and not carried out to its end."""
        return self.ring is not None and bool(self.ring.retiring)


def key_id(hash: str, generation: int) -> str:
    return f"{hash}.{generation}"


def subject_note(hash: str, subject: Subject) -> Note:
    return SUBJECT_PREFIX + hash.encode(), _encode(subject)


def ring_note(ring: Ring) -> Note:
    return RING_KEY, _encode(ring)


# --- what to write next -----------------------------------------------------------------------

Wrap = Callable[[str, str], str]  # a new key of this id, wrapped by the wrapping key of this name


def announcement(book: KeyBook, *, check: str, name: str) -> list[Note]:
    """That a wrapping key of this name comes, unless one does already."""
    ring = book.ring or Ring(check=check)
    if ring.coming:
        return []
    return [ring_note(msgspec.structs.replace(ring, coming=name))]


def succession(book: KeyBook, *, coming: str) -> list[Note]:
    """The key that was announced is the current one now, and is there. [] if another was."""
    ring = book.ring
    if ring is None or not coming or ring.coming != coming:
        return []
    retiring = (*ring.retiring, ring.current) if ring.current else ring.retiring
    return [
        ring_note(
            msgspec.structs.replace(ring, current=coming, coming="", retiring=retiring),
        )
    ]


def due(book: KeyBook, hashes: Iterable[str]) -> list[str]:
    """Those that are not forgotten yet."""
    found = ((hash, book.subject(hash)) for hash in dict.fromkeys(hashes))
    return [hash for hash, one in found if one is None or one.forgotten is None]


def decision(book: KeyBook, hashes: Iterable[str], remark: Remark, *, coming: str) -> list[Note]:
    """That these are forgotten. With it the wrapping key changes, also for who had no key: the
    arguments of a command that waits may be the first that is known of somebody, and prints of
    commands may be of anybody. `coming` is the one that was made for it. [] if it is no longer the
    one that is announced."""
    left = due(book, hashes)
    change = succession(book, coming=coming)
    if not left or not change:
        return []
    return [*(subject_note(hash, _forgotten(book, hash, remark)) for hash in left), *change]


def _forgotten(book: KeyBook, hash: str, remark: Remark) -> Subject:
    before = book.subject(hash)
    return Subject(generation=before.generation if before else 0, forgotten=remark)


def first_key(book: KeyBook, hash: str, wrap: Wrap) -> list[Note]:
    """A key for a subject that has none. One that was forgotten gets none."""
    found = book.subject(hash)
    if found is not None and found.forgotten is not None:
        raise SubjectForgotten(subject=hash, at=found.forgotten.at)
    if found is not None or book.ring is None:
        return []
    current = book.ring.current
    made = Subject(generation=1, wrapping=current, key=wrap(key_id(hash, 1), current))
    return [subject_note(hash, made)]


def renewal(book: KeyBook, hash: str, remark: Remark, wrap: Wrap) -> list[Note]:
    """A key again for a subject that was forgotten; what the old one sealed stays so."""
    found = book.subject(hash)
    if found is None or found.forgotten is None or book.ring is None:
        return []
    current, generation = book.ring.current, found.generation + 1
    wrapped = wrap(key_id(hash, generation), current)
    made = Subject(generation=generation, wrapping=current, key=wrapped, consent=remark)
    return [subject_note(hash, made)]


def rewrapping(
    book: KeyBook, hashes: Iterable[str], rewrap: Callable[[str, Subject, str], str]
) -> list[Note]:
    """These keys, wrapped by the current wrapping key; those that are so already are left out."""
    if book.ring is None:
        return []
    current = book.ring.current
    notes = []
    for hash in hashes:
        one = book.subject(hash)
        if one is not None and one.key and one.wrapping != current:
            wrapped = rewrap(key_id(hash, one.generation), one, current)
            made = msgspec.structs.replace(one, wrapping=current, key=wrapped)
            notes.append(subject_note(hash, made))
    return notes


def completion(book: KeyBook, *, destroyed: Iterable[str]) -> list[Note]:
    """These wrapping keys are gone."""
    ring = book.ring
    if ring is None or not set(ring.retiring) & set(destroyed):
        return []
    left = tuple(name for name in ring.retiring if name not in set(destroyed))
    return [ring_note(msgspec.structs.replace(ring, retiring=left))]
