"""Keys in a dictionary: what sealing asks of a keyring, and no log behind it."""

from datetime import UTC, datetime

from millstream.eventsourcing.key_book import SubjectForgotten
from millstream.eventsourcing.sealing import DataKey, subject_hash, subject_of_key

SECRET = bytes(range(32))
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class PlainKeys:
    """The key of a subject is made of its name, so that two of these agree."""

    def __init__(self) -> None:
        self.forgotten: set[str] = set()
        self.erasures = 0

    def hash_of(self, subject: str) -> str:
        return subject_hash(SECRET, subject)

    def key_for(self, subject: str) -> DataKey:
        hash = self.hash_of(subject)
        if hash in self.forgotten:
            raise SubjectForgotten(subject=hash, at=LONG_AGO)
        return DataKey(f"{hash}.1", hash.encode().ljust(32, b"."))

    def key_of(self, key_id: str) -> DataKey | None:
        hash = subject_of_key(key_id)
        return None if hash in self.forgotten else DataKey(key_id, hash.encode().ljust(32, b"."))

    def seal_passing(self, data: bytes, *, place: str) -> str:
        raise NotImplementedError

    def open_passing(self, text: str, *, place: str) -> bytes | None:
        raise NotImplementedError

    def print_of(self, data: bytes) -> str:
        raise NotImplementedError

    def forget(self, subject: str) -> None:
        self.forgotten.add(self.hash_of(subject))
        self.erasures += 1
