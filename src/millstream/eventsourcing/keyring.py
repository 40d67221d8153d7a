"""The keys of all subjects: made when first needed, opened to be used, taken away for good.

    data keys       one for each subject and generation, wrapped, in the compacted topic
    wrapping keys   one at a time, in a key store outside of the log (key_store.py)

To forget is to change the wrapping key: all other data keys are wrapped anew, then the old one is
destroyed. So whatever old segments of the topic and backups still have of a forgotten data key
cannot be unwrapped by anything that is left (key_book.py has the steps).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from millstream.base.errors import Corrupt
from millstream.eventsourcing import key_book, sealing
from millstream.eventsourcing.key_book import KeyBook, Remark, Ring, Subject, SubjectForgotten
from millstream.eventsourcing.key_store import KeyStore
from millstream.eventsourcing.key_topic import KeyTopic
from millstream.eventsourcing.personal import subject_text
from millstream.eventsourcing.sealing import DataKey, subject_hash, subject_of_key
from millstream.eventsourcing.wrapping_keys import ROUNDS_MAX, KeyringLost, WrappingKeys

# A key is used only if the topic was read to its end this many seconds ago at most. So a process
# neither seals nor opens with the key of a subject that another one has forgotten longer before.
KEYS_AGE_SECONDS_MAX: Final = 1.0
# Opened keys and names of subjects that are held ready: some 400 bytes each.
READY_KEYS_MAX: Final = 10_000
REWRAP_BATCH: Final = 10_000

Kept = TypeVar("Kept")
Progress = Callable[[int, int], None]  # how many keys are wrapped anew, of how many


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
        self._wrapping = WrappingKeys(keys, store)
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
            opened = self._opened(hash, found)
            return self.key_for(subject) if opened is None else opened

    def _newest(self, hash: str) -> Subject | None:
        now = self._clock()
        self._keys.refresh()
        self._was_read(now)
        return self._keys.book.subject(hash)

    def _made(self, hash: str) -> Subject:
        now = self._clock()
        wrap = self._wrapping.wrap_new
        self._keys.change(lambda book: key_book.first_key(book, hash, wrap))
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
            opened = self._opened(hash, found)
            return self.key_of(key_id) if opened is None else opened

    def seal_passing(self, data: bytes, *, place: str) -> str:
        """For what is read once and soon, whoever it is about, such as a command on its way: the
        next erasure closes it for good."""
        with self._lock:
            return self._with_current(
                lambda name: sealing.seal_passing(
                    data, self._wrapping.cipher(name), name, place=place
                )
            )

    def open_passing(self, text: str, *, place: str) -> bytes | None:
        """None if an erasure came between."""
        with self._lock:
            name = sealing.wrapping_of(text)
            self._book()
            if not self._wrapping.counts(name):
                self._keys.refresh()  # another process has announced it just now, or it is gone
            if not self._wrapping.counts(name):
                return None
            try:
                return sealing.open_passing(text, self._wrapping.cipher(name), place=place)
            except KeyringLost:
                self._keys.refresh()
                if self._wrapping.counts(name):
                    raise
                return None

    def print_of(self, data: bytes) -> str:
        """Tells the same bytes again until the next erasure, and nobody what they were: a hash of
        a birthday is found by trying, as long as somebody has the key that made it."""
        with self._lock:
            return self._with_current(
                lambda name: sealing.keyed_print(data, self._wrapping.print_key(name), name)
            )

    def _with_current(self, use: Callable[[str], Kept]) -> Kept:
        """What `use` makes with the current wrapping key; with the next one if another process
        has destroyed that meanwhile."""
        self._secret()
        name = self._current()
        try:
            return use(name)
        except KeyringLost:
            self._keys.refresh()
            if self._current() == name:
                raise
            return use(self._current())

    def _current(self) -> str:
        ring = self._book().ring
        assert ring is not None, "it was begun"
        return ring.current

    def hash_of(self, subject: str) -> str:
        """What the subject is called in topics, tags and reports."""
        with self._lock:
            found = self._hashes.get(subject)
            if found is None:
                found = subject_hash(self._secret(), subject_text(subject))
                _put_bounded(self._hashes, subject, found)
            return found

    def subject(self, subject: str) -> Subject | None:
        """What is known of it, as of now."""
        with self._lock:
            return self._newest(self.hash_of(subject))

    def close(self) -> None:
        with self._lock:
            self._ready.clear()
            self._wrapping.drop_all()
            self._hashes.clear()
            self._read_at = float("-inf")
            self._keys.close()

    def _secret(self) -> bytes:
        self._book()
        return self._wrapping.secret

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
            self._wrapping.drop_those_gone()
            self._held_for = (book.erasures, book.ring)

    def _opened(self, hash: str, found: Subject) -> DataKey | None:
        """None if that is old news: it was wrapped anew since, or forgotten."""
        key_id = key_book.key_id(hash, found.generation)
        ready = self._ready.get(key_id)
        if ready is None:
            try:
                ready = DataKey(key_id, self._wrapping.unwrap(key_id, found))
            except KeyringLost:
                if self._newest(hash) == found:
                    raise
                return None
            _put_bounded(self._ready, key_id, ready)
        return ready

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
            self._secret()
            self._wrapping.succeed()
        while self._is_left():
            self._finish(progress)

    def consent(self, subject: str, remark: Remark) -> bool:
        """A subject that was forgotten gets a new key. Whether it had been forgotten."""
        with self._lock:
            hash, now = self.hash_of(subject), self._clock()
            found = self._newest(hash)
            was_forgotten = found is not None and found.forgotten is not None
            wrap = self._wrapping.wrap_new
            self._keys.change(lambda book: key_book.renewal(book, hash, remark, wrap))
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
        for _ in range(ROUNDS_MAX):
            self._keys.refresh()
            left = key_book.due(self._keys.book, hashes)
            if not left:
                return
            coming = self._wrapping.announce()
            self._keys.change(partial(key_book.decision, hashes=left, remark=remark, coming=coming))
        raise self._wrapping.contended()

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
            self._wrapping.destroy(name)
        with self._lock:
            self._keys.change(partial(key_book.completion, destroyed=retiring))

    def _rewrap(self, progress: Progress | None) -> None:
        """Until no data key is left that is wrapped by another than the current one."""
        while stale := self._keys.book.wrapped_otherwise():
            for start in range(0, len(stale), REWRAP_BATCH):
                batch = stale[start : start + REWRAP_BATCH]
                with self._lock:
                    self._keys.change(
                        partial(key_book.rewrapping, hashes=batch, rewrap=self._wrapping.rewrap)
                    )
                if progress is not None:
                    progress(start + len(batch), len(stale))


def _put_bounded(kept: OrderedDict[str, Kept], key: str, value: Kept) -> None:
    kept[key] = value
    if len(kept) > READY_KEYS_MAX:
        kept.popitem(last=False)
