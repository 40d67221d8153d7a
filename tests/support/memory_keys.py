"""A topic of keys and a key store in memory, whose every step a test can see, hold or cut off.

The topic is fenced as Kafka's transactions are: who opens it takes the next epoch, and a commit by
an older one fails. What was ever written stays to be looked at, as in an old segment or a backup.
"""

from collections.abc import Callable, Sequence

from millstream.base.log_clients import WriterFenced
from millstream.eventsourcing.key_book import KeyBook, Note
from millstream.eventsourcing.key_topic import KeyTopic

Step = Callable[[str], None]


def no_step(_name: str) -> None:
    """Nothing happens between two steps."""


class MemoryLog:
    """What all processes share."""

    def __init__(self) -> None:
        self.records: list[Note] = []
        self.epoch = 0


class MemoryKeyTopic(KeyTopic):
    """As one process has it open."""

    def __init__(self, log: MemoryLog, step: Step = no_step) -> None:
        self.client, self.name, self._pause = {"bootstrap.servers": "memory"}, "shop.keys", _at_once
        self.book = KeyBook()
        self._log, self._step = log, step
        self._producer, self._read_to = None, 0

    def refresh(self) -> None:
        for key, value in self._log.records[self._read_to :]:
            self.book.apply(key, value, place=f"memory at {self._read_to}")
            self._read_to += 1

    def close(self) -> None:
        self._producer = None

    def _open_producer(self) -> None:
        self._step("open")
        self._log.epoch += 1
        self._producer = self._log.epoch

    def _drop_producer(self) -> None:
        self._producer = None

    def _commit(self, notes: Sequence[Note]) -> int:
        self._step("commit")
        if self._producer != self._log.epoch:
            raise WriterFenced(doing="commit")
        self._log.records.extend(notes)
        self._step("committed")
        return len(self._log.records) - 1

    def _settle(self, notes: Sequence[Note], offset: int) -> None:
        self.refresh()


class MemoryKeyStore:
    """`destroyed` are the names that were taken away."""

    def __init__(self, keys: dict[str, bytes], step: Step = no_step) -> None:
        self.place, self.keys, self._step = "memory", keys, step

    def load(self, name: str) -> bytes | None:
        return self.keys.get(name)

    def keep(self, name: str, key: bytes) -> bytes:
        self._step("keep")
        kept = self.keys.setdefault(name, key)
        self._step("kept")
        return kept

    def destroy(self, name: str) -> None:
        self._step("destroy")
        self.keys.pop(name, None)
        self._step("destroyed")


def _at_once(_seconds: float) -> None:
    """Nobody is waited for."""
