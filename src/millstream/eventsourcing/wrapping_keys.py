"""The wrapping keys of a topic of keys: made, announced, used, destroyed. And the secret that
subjects are named by.

They are in a key store (key_store.py); the topic says which of them count (key_book.py). Used by
one thread at a time: `keyring.py` sees to that.
"""

import os
from functools import partial
from typing import Final
from uuid import uuid4

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from millstream.base.errors import Corrupt
from millstream.eventsourcing import key_book
from millstream.eventsourcing.key_book import Ring, Subject
from millstream.eventsourcing.key_store import KeyStore
from millstream.eventsourcing.key_topic import KeysContended, KeyTopic
from millstream.eventsourcing.sealing import (
    KEY_BYTES,
    WRAPPING_PREFIX,
    print_key,
    subject_hash,
    unwrap_key,
    wrap_key,
)

SUBJECTS_SECRET: Final = "subjects"
CHECKED: Final = "is this the keyring of the topic?"
# Each lost round is one that another process has won.
ROUNDS_MAX: Final = 100


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


class WrappingKeys:
    """Of one topic. `store` has them. Ask for the secret first: it begins a new topic."""

    def __init__(self, keys: KeyTopic, store: KeyStore) -> None:
        self._keys, self._store = keys, store
        self._secret: bytes | None = None
        self._check = ""
        self._ciphers: dict[str, AESGCM] = {}
        self._print_keys: dict[str, bytes] = {}

    @property
    def secret(self) -> bytes:
        """What subjects are named by. It never changes: tags in the log are made with it."""
        if self._secret is None:
            ring = self._keys.book.ring
            if ring is None:
                self._store.keep(SUBJECTS_SECRET, os.urandom(KEY_BYTES))
            secret = self._checked_secret(ring)
            if ring is None or not ring.current:
                self._begin()
            self._secret = secret
        return self._secret

    def _checked_secret(self, ring: Ring | None) -> bytes:
        secret = self._store.load(SUBJECTS_SECRET)
        if secret is None:
            raise self._lost(SUBJECTS_SECRET)
        self._check = subject_hash(secret, CHECKED)
        if ring is not None and ring.check != self._check:
            raise WrongKeyring(topic=self._keys.name, place=self._store.place)
        return secret

    def _begin(self) -> None:
        """The first wrapping key of a new topic."""
        for _ in range(ROUNDS_MAX):
            ring = self._keys.book.ring
            if ring is not None and ring.current:
                return
            self.succeed()
        raise self.contended()

    def succeed(self) -> None:
        """The key that was announced is the current one, unless another process was first."""
        self._keys.change(partial(key_book.succession, coming=self.announce()))

    def announce(self) -> str:
        """The name of the wrapping key that comes, which is there now. Empty if another process
        has used it since."""
        name = f"{WRAPPING_PREFIX}{uuid4().hex}"
        self._keys.change(partial(key_book.announcement, check=self._check, name=name))
        ring = self._keys.book.ring
        coming = "" if ring is None else ring.coming
        if coming:
            self._store.keep(coming, os.urandom(KEY_BYTES))
        return coming

    def cipher(self, name: str) -> AESGCM:
        found = self._ciphers.get(name)
        if found is None:
            found = self._ciphers[name] = AESGCM(self._loaded(name))
        return found

    def print_key(self, name: str) -> bytes:
        """What prints of commands are made with while this wrapping key is the current one."""
        found = self._print_keys.get(name)
        if found is None:
            found = self._print_keys[name] = print_key(self._loaded(name))
        return found

    def _loaded(self, name: str) -> bytes:
        key = self._store.load(name)
        if key is None:
            raise self._lost(name)
        return key

    def wrap_new(self, key_id: str, name: str) -> str:
        return wrap_key(os.urandom(KEY_BYTES), key_id, self.cipher(name), name)

    def rewrap(self, key_id: str, subject: Subject, name: str) -> str:
        return wrap_key(self.unwrap(key_id, subject), key_id, self.cipher(name), name)

    def unwrap(self, key_id: str, subject: Subject) -> bytes:
        wrapping = subject.wrapping
        return unwrap_key(subject.key, key_id, self.cipher(wrapping), wrapping)

    def destroy(self, name: str) -> None:
        self._store.destroy(name)

    def counts(self, name: str) -> bool:
        ring = self._keys.book.ring
        return ring is not None and name in (ring.current, ring.coming, *ring.retiring)

    def drop_those_gone(self) -> None:
        """Out of memory."""
        for kept in (self._ciphers, self._print_keys):
            for name in [one for one in kept if not self.counts(one)]:
                del kept[name]

    def drop_all(self) -> None:
        self._ciphers.clear()
        self._print_keys.clear()
        self._secret = None

    def contended(self) -> KeysContended:
        reason = "another process always came first"
        return KeysContended(topic=self._keys.name, tries=ROUNDS_MAX, reason=reason)

    def _lost(self, name: str) -> KeyringLost:
        return KeyringLost(topic=self._keys.name, place=self._store.place, missing=name)
