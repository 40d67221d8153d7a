"""The keys of all subjects: made when first needed, opened to be used, taken away for good.

    data keys       one for each subject and generation, wrapped, in the compacted topic
    wrapping keys   one at a time, in a key store outside of the log (key_store.py)

To forget is to change the wrapping key: all other data keys are wrapped anew, then the old one is
destroyed. So whatever old segments of the topic and backups still have of a forgotten data key
cannot be unwrapped by anything that is left (key_book.py has the steps).
"""

import hmac
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.base.errors import Corrupt
from millstream.eventsourcing import key_book, sealing
from millstream.eventsourcing.key_book import KeyBook, Remark, Ring, Subject, SubjectForgotten
from millstream.eventsourcing.key_store import KeyStore
from millstream.eventsourcing.key_topic import KeysContended, KeyTopic
from millstream.eventsourcing.personal import subject_text
from millstream.eventsourcing.sealing import (
    KEY_BYTES,
    DataKey,
    subject_hash,
    subject_of_key,
    unwrap_key,
    wrap_key,
)

# A key is used only if the topic was read to its end this many seconds ago at most. So a process
# neither seals nor opens with the key of a subject that another one has forgotten longer before.
KEYS_AGE_SECONDS_MAX: Final = 1.0
# Opened keys and names of subjects that are held ready: some 400 bytes each.
READY_KEYS_MAX: Final = 10_000
REWRAP_BATCH: Final = 10_000
ROUNDS_MAX: Final = 100
SUBJECTS_SECRET: Final = "subjects"
CHECKED: Final = "is this the keyring of the topic?"

Kept = TypeVar("Kept")
Progress = Callable[[int, int], None]  # how many keys are wrapped anew, of how many


class KeyringLost(Corrupt):
    """The keys in the topic cannot be unwrapped. They are not forgotten: somebody may have it."""

    def __init__(self, *, topic: str, place: str, missing: str) -> None:
        super().__init__(
            f"{topic} needs the key {missing!r}, which is not in {place}. Is it the right keyring? "
            "If it is lost, put back the newest copy: without it no personal data can be opened"
        )
        self.topic, self.place, self.missing = topic, place, missing


class WrongKeyring(Corrupt):
    def __init__(self, *, topic: str, place: str) -> None:
        super().__init__(
            f"the keyring in {place} belongs to another topic than {topic}. Give the right one "
            "(the setting keyring)"
        )
        self.topic, self.place = topic, place


class UnknownKey(Corrupt):
    def __init__(self, *, topic: str, key_id: str) -> None:
        super().__init__(
            f"{topic} never had the key {key_id}: the sealed value comes from another application, "
            "or the topic is not the one that belongs to it"
        )
        self.topic, self.key_id = topic, key_id


def boot_seconds() -> float:
    """A clock that also goes while the machine sleeps: a key must not outlive a night in it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Keyring:
    """Thread-safe. Nothing is made, here or in the log, before it is first used."""

    def __init__(
        self, keys: KeyTopic, store: KeyStore, *, clock: Callable[[], float] = boot_seconds
    ) -> None:
        self.topic, self.store = keys.name, store
        self._clock = clock
        self._lock = threading.RLock()
        self._keys = keys
        self._read_at = float("-inf")
        self._secret: bytes | None = None
        self._wrapping: dict[str, AESGCM] = {}
        self._held_for: tuple[int, Ring | None] = (0, None)
        self._ready: OrderedDict[str, DataKey] = OrderedDict()
        self._hashes: OrderedDict[str, str] = OrderedDict()

    # --- to seal and to open ------------------------------------------------------------------

    def key_for(self, subject: str) -> DataKey:
        """To seal with; made if the subject has none. SubjectForgotten if it must not."""
        with self._lock:
            hash = self.hash_of(subject)
            found = self._book().subject(hash)
            if found is not None and found.forgotten is not None:  # or has consented just now
                found = self._newest(hash)
            if found is None:
                found = self._made(hash)
            if found.forgotten is not None:
                raise SubjectForgotten(subject=hash, at=found.forgotten.at)
            return self._opened(hash, found)

    def _newest(self, hash: str) -> Subject | None:
        now = self._clock()
        self._keys.refresh()
        self._was_read(now)
        return self._keys.book.subject(hash)

    def _made(self, hash: str) -> Subject:
        now = self._clock()
        self._keys.change(lambda book: key_book.first_key(book, hash, self._wrapped_new))
        self._was_read(now)
        found = self._keys.book.subject(hash)
        assert found is not None, "it was committed, and read back"
        return found

    def key_of(self, key_id: str) -> DataKey | None:
        """To open with; None if its subject was forgotten."""
        with self._lock:
            book = self._book()
            ready = self._ready.get(key_id)
            if ready is not None:
                return ready
            hash, generation = subject_of_key(key_id), int(key_id.rpartition(".")[2])
            found = book.subject(hash)
            if found is None or found.generation < generation:  # another process made it just now
                found = self._newest(hash)
            if found is None or found.generation < generation:
                raise UnknownKey(topic=self.topic, key_id=key_id)
            if found.forgotten is not None or found.generation > generation:
                return None
            return self._opened(hash, found)

    def seal_passing(self, data: bytes, *, place: str) -> str:
        """For what is read once and soon, whoever it is about, such as a command on its way: the
        next erasure closes it for good."""
        with self._lock:
            self._subjects_secret()
            ring = self._book().ring
            assert ring is not None, "it was begun"
            name = ring.current
            return sealing.seal_passing(data, self._wrapping_key(name), name, place=place)

    def open_passing(self, text: str, *, place: str) -> bytes | None:
        """None if an erasure came between."""
        with self._lock:
            name = sealing.wrapping_of(text)
            if not _counts(self._book().ring, name):
                return None
            try:
                return sealing.open_passing(text, self._wrapping_key(name), place=place)
            except KeyringLost:
                self._keys.refresh()
                if _counts(self._keys.book.ring, name):
                    raise
                return None

    def print_of(self, data: bytes) -> bytes:
        """Tells the same bytes again, and nobody else what they were: a plain hash of an e-mail
        address is found by trying."""
        with self._lock:
            return hmac.digest(self._subjects_secret(), b"millstream print\0" + data, "sha256")

    @property
    def erasures(self) -> int:
        """Changes whenever a subject was forgotten: then what was opened before must go."""
        with self._lock:
            return self._book().erasures

    def hash_of(self, subject: str) -> str:
        """What the subject is called in topics, tags and reports."""
        with self._lock:
            found = self._hashes.get(subject)
            if found is None:
                found = subject_hash(self._subjects_secret(), subject_text(subject))
                _put_bounded(self._hashes, subject, found)
            return found

    def subject(self, subject: str) -> Subject | None:
        """What is known of it, as of now."""
        with self._lock:
            return self._newest(self.hash_of(subject))

    def close(self) -> None:
        with self._lock:
            self._ready.clear()
            self._wrapping.clear()
            self._hashes.clear()
            self._secret = None
            self._read_at = float("-inf")
            self._keys.close()

    def _book(self) -> KeyBook:
        """What the topic says, not longer ago than a key may be used."""
        now = self._clock()
        if now - self._read_at > KEYS_AGE_SECONDS_MAX:
            self._keys.refresh()
            self._was_read(now)
        return self._keys.book

    def _was_read(self, at: float) -> None:
        """As of `at`. What is taken away goes out of memory, as far as Python lets it."""
        self._read_at = at
        book = self._keys.book
        if (book.erasures, book.ring) != self._held_for:
            for key_id in [one for one in self._ready if not book.has_key(one)]:
                del self._ready[key_id]
            for name in [one for one in self._wrapping if not _counts(book.ring, one)]:
                del self._wrapping[name]
            self._held_for = (book.erasures, book.ring)

    def _opened(self, hash: str, found: Subject) -> DataKey:
        key_id = key_book.key_id(hash, found.generation)
        ready = self._ready.get(key_id)
        if ready is None:
            ready = DataKey(key_id, self._unwrapped(key_id, found))
            _put_bounded(self._ready, key_id, ready)
        return ready

    def _unwrapped(self, key_id: str, found: Subject) -> bytes:
        try:
            return unwrap_key(found.key, key_id, self._wrapping_key(found.wrapping), found.wrapping)
        except KeyringLost:
            # It may have been wrapped anew since the topic was read, and the old one destroyed.
            self._keys.refresh()
            newer = self._keys.book.subject(subject_of_key(key_id))
            if newer is None or newer.key == found.key or newer.generation != found.generation:
                raise
            return self._unwrapped(key_id, newer)

    # --- wrapping keys ------------------------------------------------------------------------

    def _subjects_secret(self) -> bytes:
        """What subjects are named by. It never changes: tags in the log are made with it."""
        if self._secret is None:
            ring = self._book().ring
            if ring is None:
                self.store.keep(SUBJECTS_SECRET, os.urandom(KEY_BYTES))
            secret = self.store.load(SUBJECTS_SECRET)
            if secret is None:
                raise self._lost(SUBJECTS_SECRET)
            if ring is not None and ring.check != subject_hash(secret, CHECKED):
                raise WrongKeyring(topic=self.topic, place=self.store.place)
            self._secret = secret
            if ring is None or not ring.current:
                self._begin(secret)
        return self._secret

    def _begin(self, secret: bytes) -> None:
        """The first wrapping key of a new topic."""
        for _ in range(ROUNDS_MAX):
            book = self._keys.book
            if book.ring is not None and book.ring.current:
                return
            coming = self._announced(subject_hash(secret, CHECKED))
            self._keys.change(partial(key_book.succession, coming=coming))
        raise self._contended("another process always came first")

    def _announced(self, check: str) -> str:
        """The name of the wrapping key that comes, which is there now."""
        name = f"wrapping-{uuid4().hex}"
        self._keys.change(lambda book: key_book.announcement(book, check=check, name=name))
        ring = self._keys.book.ring
        assert ring is not None
        if ring.coming:
            self.store.keep(ring.coming, os.urandom(KEY_BYTES))
        return ring.coming

    def _wrapping_key(self, name: str) -> AESGCM:
        found = self._wrapping.get(name)
        if found is None:
            key = self.store.load(name)
            if key is None:
                raise self._lost(name)
            found = self._wrapping[name] = AESGCM(key)
        return found

    def _wrapped_new(self, key_id: str, wrapping: str) -> str:
        return wrap_key(os.urandom(KEY_BYTES), key_id, self._wrapping_key(wrapping), wrapping)

    def _rewrapped(self, key_id: str, subject: Subject, wrapping: str) -> str:
        old = self._wrapping_key(subject.wrapping)
        secret = unwrap_key(subject.key, key_id, old, subject.wrapping)
        return wrap_key(secret, key_id, self._wrapping_key(wrapping), wrapping)

    # --- to forget and to consent -------------------------------------------------------------

    def forget(
        self, subjects: Sequence[str], remark: Remark, *, progress: Progress | None = None
    ) -> None:
        """Take the keys of these subjects away, and finish what another erasure has left.

        Complete when it returns. If it is cut off at any point, do it again: by whom or for whom
        does not matter.
        """
        with self._lock:
            hashes = [self.hash_of(one) for one in subjects]
            self._decide(hashes, remark)
        while self._is_left():
            self._finish(progress)

    def renew(self, *, progress: Progress | None = None) -> None:
        """Another wrapping key, though nobody is forgotten: for when somebody may have seen it."""
        with self._lock:
            check = subject_hash(self._subjects_secret(), CHECKED)
            coming = self._announced(check)
            self._keys.change(partial(key_book.succession, coming=coming))
        while self._is_left():
            self._finish(progress)

    def consent(self, subject: str, remark: Remark) -> bool:
        """A subject that was forgotten gets a new key. Whether it had been forgotten."""
        with self._lock:
            hash, now = self.hash_of(subject), self._clock()
            found = self._newest(hash)
            was_forgotten = found is not None and found.forgotten is not None
            self._keys.change(lambda book: key_book.renewal(book, hash, remark, self._wrapped_new))
            self._was_read(now)
            return was_forgotten

    @property
    def is_unfinished(self) -> bool:
        """Whether an erasure was cut off: the next `forget` finishes it."""
        with self._lock:
            return self._book().is_unfinished

    def __len__(self) -> int:
        """How many subjects have a key, or had one."""
        with self._lock:
            return len(self._book())

    def _decide(self, hashes: list[str], remark: Remark) -> None:
        check = subject_hash(self._subjects_secret(), CHECKED)
        for _ in range(ROUNDS_MAX):
            self._keys.refresh()
            left = key_book.due(self._keys.book, hashes)
            if not left:
                return
            needs_change = key_book.has_keys(self._keys.book, left)
            coming = self._announced(check) if needs_change else None
            self._keys.change(partial(key_book.decision, hashes=left, remark=remark, coming=coming))
        raise self._contended("another process always came first")

    def _is_left(self) -> bool:
        """Whether there is an erasure to finish, as of now."""
        with self._lock:
            now = self._clock()
            self._keys.refresh()
            self._was_read(now)
            return self._keys.book.is_unfinished

    def _finish(self, progress: Progress | None) -> None:
        """Other threads get their keys between two steps."""
        ring = self._keys.book.ring
        retiring = ring.retiring if ring else ()
        self._rewrap(progress)
        # None of them is ever the current one again: nothing new will be wrapped by them.
        for name in retiring:
            self.store.destroy(name)
        with self._lock:
            self._keys.change(partial(key_book.completion, destroyed=retiring))

    def _rewrap(self, progress: Progress | None) -> None:
        """Until no data key is left that is wrapped by another than the current one."""
        while stale := self._keys.book.wrapped_otherwise():
            for start in range(0, len(stale), REWRAP_BATCH):
                batch = stale[start : start + REWRAP_BATCH]
                with self._lock:
                    self._keys.change(
                        partial(key_book.rewrapping, hashes=batch, rewrap=self._rewrapped)
                    )
                if progress is not None:
                    progress(start + len(batch), len(stale))

    def _lost(self, name: str) -> KeyringLost:
        return KeyringLost(topic=self.topic, place=self.store.place, missing=name)

    def _contended(self, reason: str) -> KeysContended:
        return KeysContended(topic=self.topic, tries=ROUNDS_MAX, reason=reason)


def _counts(ring: Ring | None, name: str) -> bool:
    return ring is not None and name in (ring.current, ring.coming, *ring.retiring)


def _put_bounded(kept: OrderedDict[str, Kept], key: str, value: Kept) -> None:
    kept[key] = value
    if len(kept) > READY_KEYS_MAX:
        kept.popitem(last=False)
