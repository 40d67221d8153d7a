"""The loads of a capture with threads that read: the shell around course.py.

All methods are called by the runner's thread. Readers only take an ask, do it and bring the
answer; what it means is decided between two transactions of the stream, by `due`. An error of a
reader is raised there, too.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from millstream.capture.change import CapturedTable, Change, Message, Transaction
from millstream.capture.load.course import CHUNK_ROWS_MAX, Course, Due, TopicKey, same_key
from millstream.capture.load.plan import Phase, TableLoad, is_unfinished, load_from_json
from millstream.capture.load.progress import LoadProgress
from millstream.capture.load.table_course import (
    Answer,
    Ask,
    LeftKeys,
    Parts,
    Read,
    Scan,
    Settle,
    Split,
)
from millstream.capture.source import Loader, Settles

READERS: Final = 2
# Before a chunk is read again whose snapshot was too old: a standby answers in less, or not soon.
READ_AGAIN_SECONDS: Final = 0.05
CLOSE_SECONDS: Final = 5.0


class TopicEnds(Protocol):
    """What a load asks of the log; sweep.py has it. `keys_left` is called in a reader's thread."""

    def ends(self, topic: str) -> Sequence[int]:
        """Where each partition ends, with all that was written so far, committed or not."""
        ...

    def keys_left(self, topic: str, ends: Sequence[int]) -> LeftKeys:
        """The keys whose newest committed record is before `ends`, and no tombstone."""
        ...


class Loading:
    """Of one run of a capture. After an aborted Kafka transaction: close it, and make another.

    `gone`: tables of the capture that were there once, and are not there now.
    """

    def __init__(
        self,
        loader: Loader,
        topics: TopicEnds,
        *,
        tables: Sequence[CapturedTable],
        states: Mapping[str, str],
        gone: Sequence[CapturedTable] = (),
        topic_key: TopicKey = same_key,
        is_past: Callable[[str, str], bool],
        chunk_rows: int = CHUNK_ROWS_MAX,
        readers: int = READERS,
    ) -> None:
        self._loader, self._topics = loader, topics
        self._course = Course(
            ends=topics.ends, is_past=is_past, topic_key=topic_key, chunk_rows_max=chunk_rows
        )
        self._asks: SimpleQueue[Ask | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Ask, Answer | Exception]] = SimpleQueue()
        self._readers_max, self._readers = readers, list[threading.Thread]()
        self._is_closed = threading.Event()
        self._since = time.monotonic()
        for table in tables:
            state = states.get(table.name)
            load = load_from_json(table.name, state) if state is not None else None
            self._course.add(table, load)
        for table in gone:
            if is_unfinished(table.name, states.get(table.name)):
                self._course.add_gone(table)
            else:  # it is known: one of the same name may be made, and is to be loaded then
                self._course.add(table, TableLoad(phase=Phase.DONE))
        self._rows_here = 0

    def followed(self, transaction: Transaction) -> Iterator[Change | Message]:
        """The transaction's changes, to be written one by one as they come."""
        return self._course.followed(transaction)

    def due(self, position: str) -> list[Due]:
        """What is to be written after all that was handed over up to `position`, with its state."""
        self._take_answers()
        found = self._course.due(position)
        self._rows_here += sum(len(one.changes) for one in found)
        self._hand_out()
        return found

    def committed(self) -> None:
        """All that was written so far can be read."""
        self._course.committed()
        self._hand_out()

    def add(self, tables: Sequence[CapturedTable]) -> None:
        """Load those that are not known yet."""
        for table in tables:
            self._course.add(table)

    def reload(self, name: str) -> None:
        self._course.reload(name)

    @property
    def is_done(self) -> bool:
        return self._course.is_done

    def progress(self) -> LoadProgress:
        return LoadProgress(
            tables=tuple(self._course.progress()),
            rows_here=self._rows_here,
            seconds=time.monotonic() - self._since,
        )

    def close(self) -> None:
        """Ends the readers and closes the loader."""
        self._is_closed.set()
        for _ in self._readers:
            self._asks.put(None)
        for reader in self._readers:
            reader.join(CLOSE_SECONDS)
        self._course.close()
        self._loader.close()

    def _take_answers(self) -> None:
        while True:
            try:
                ask, answer = self._answers.get_nowait()
            except Empty:
                return
            if isinstance(answer, Exception):
                raise answer
            self._course.arrived(ask, answer)

    def _hand_out(self) -> None:
        for ask in self._course.asks():
            self._asks.put(ask)
            if len(self._readers) < self._readers_max:
                self._start_reader()

    def _start_reader(self) -> None:
        name = f"capture-load-{len(self._readers)}"
        reader = threading.Thread(target=self._read_on, name=name, daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read_on(self) -> None:
        while (ask := self._asks.get()) is not None and not self._is_closed.is_set():
            try:
                self._answers.put((ask, self._answer(ask)))
            except Exception as error:  # the runner's to judge: `due` raises it
                self._answers.put((ask, error))

    def _answer(self, ask: Ask) -> Answer:
        match ask:
            case Settle():
                self._settle(ask)
                return None
            case Split():
                return self._parts(ask)
            case Read():
                if ask.must_wait:
                    self._is_closed.wait(READ_AGAIN_SECONDS)
                return self._loader.read(ask.table, ask.after, ask.until, ask.rows_max)
            case Scan():
                return self._topics.keys_left(ask.topic, ask.ends)

    def _settle(self, ask: Settle) -> None:
        """A transaction whose commit is in the log holds its locks until queries see it."""
        if isinstance(self._loader, Settles):
            self._loader.settle(self._is_closed.is_set)
            for table in ask.tables:
                self._loader.settle_table(table, self._is_closed.is_set)

    def _parts(self, split: Split) -> Parts:
        table = split.table
        if isinstance(self._loader, Settles):
            self._loader.settle_table(table, self._is_closed.is_set)
        parts = self._loader.ranges(table, split.count) if table.key else [(None, None)]
        return Parts(parts=parts, rows_estimate=self._loader.rows_estimate(table))
