"""The one writer of a partition: takes decisions from many threads, runs them one after the other,
many to a transaction, and answers when it is committed. A thin shell around `staging.py`.

Whoever opens a partition fences the writer before it. A writer that was fenced, or does not know
what became of its commit, opens the partition again, looks whether its events are there, and
answers or decides again. Also who is refused is answered only then: it may have been refused for
an event that was never committed.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from millstream.base.collector import collector_paused
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.log_clients import LogNotReached, LogRefused, WriterFenced
from millstream.base.quantity import MIB
from millstream.eventsourcing.decision_queue import Along, Asked, DecisionQueue
from millstream.eventsourcing.event_ids import EventIds
from millstream.eventsourcing.event_partition import EventPartition
from millstream.eventsourcing.staging import Decided, ReadEvents, Staging
from millstream.eventsourcing.stored_event import Receipt
from millstream.eventsourcing.transaction import FencedProducer

GROUP_BYTES_MAX = 16 * MIB
# How often a group is tried, and how long it waits between: two who take a partition from each
# other must get apart.
TRIES_MAX = 30
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.002, 0.5
CLOSE_SECONDS = 90.0
# Clocks of servers that are set by the network differ by less.
CLOCK_BEHIND_MAX = timedelta(minutes=1)

logger = logging.getLogger(__name__)


class PartitionContended(Retryable):
    def __init__(self, *, place: str, tries: int, reason: str) -> None:
        super().__init__(
            f"{place}: a decision was tried {tries} times, and its transaction did not come "
            f"through ({reason}). Try it again with the same command id; if others write there "
            "all the time, send them commands over the topic"
        )
        self.place, self.tries, self.reason = place, tries, reason


class TakenOver(Retryable):
    def __init__(self, *, place: str) -> None:
        super().__init__(f"{place}: it is decided by another writer, or was already")
        self.place = place


class DecisionWaits(Rejected):
    def __init__(self, *, place: str) -> None:
        super().__init__(
            f"{place}: a decision asked its own partition for another one, and would wait for "
            "itself. Yield all events from one decision, or decide after it"
        )
        self.place = place


class PartitionWriter:
    """Its thread starts with the first decision."""

    def __init__(self, partition: EventPartition, *, now: Callable[[], datetime]) -> None:
        self.partition, self._now = partition, now
        self._place = partition.log.place(partition.number)
        self._queue = DecisionQueue(partition.log.topic)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._thread_id = 0
        self._new_id = EventIds()
        self._producer: FencedProducer | None = None
        self._term = 0
        self._has_told_clock = False

    # --- of any thread ------------------------------------------------------------------------

    def submit(self, asked: Asked) -> None:
        """Waits only if too many do."""
        if threading.get_ident() == self._thread_id:
            raise DecisionWaits(place=self._place)
        self._queue.put(asked)
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """What waits is decided first."""
        self._queue.close()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                name = f"events {self._place}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    # --- of its own thread --------------------------------------------------------------------

    def _run(self) -> None:
        self._thread_id = threading.get_ident()
        while group := self._queue.next_group():
            try:
                self._serve(group)
            except BaseException as error:  # nobody waits for ever, whatever it is
                self._drop_producer()
                for asked in group:
                    if not asked.future.done():
                        asked.future.set_exception(error)
        self._drop_producer()
        self._thread_id = 0  # another thread may get it

    def _serve(self, group: Sequence[Asked]) -> None:
        """Until each is answered; in more than one transaction, if they are large."""
        left, unknown = list(group), None
        for tried in range(TRIES_MAX):
            try:
                if self._producer is None:
                    self._open()
                    if unknown is not None and self._is_there(unknown):
                        left = self._answered(left)
                    unknown = None
                while left := self._wanted(left):
                    unknown = self._stage(left)
                    self._commit(unknown, left)
                    unknown, left = None, self._answered(left)
                return
            except (WriterFenced, LogRefused, Retryable) as error:
                self._drop_producer()
                if tried == TRIES_MAX - 1 or isinstance(error, LogRefused):
                    raise self._given_up(tried + 1, error) from None
                time.sleep(random.uniform(0, min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN * 2**tried)))

    def _wanted(self, left: Sequence[Asked]) -> list[Asked]:
        """Without those that another writer has taken over."""
        wanted = []
        for asked in left:
            if asked.along is not None and asked.along.is_over(self._term):
                asked.future.set_exception(TakenOver(place=self._place))
            else:
                wanted.append(asked)
        return wanted

    def _given_up(self, tries: int, error: MillstreamError) -> MillstreamError:
        if isinstance(error, LogRefused):
            return error
        return PartitionContended(place=self._place, tries=tries, reason=str(error))

    def _open(self) -> None:
        """In this order: nobody else can commit any more, then all that is committed is read."""
        log = self.partition.log
        producer = FencedProducer(log.client, log.topic, self.partition.number)
        try:
            producer.open()
            self.partition.catch_up()
            self.partition.check_numbers()
        except BaseException:
            producer.close()
            raise
        self._producer, self._term = producer, self._term + 1

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _stage(self, left: Sequence[Asked]) -> Staging:
        """As many as fit; the others have no outcome."""
        partition = self.partition
        staging = Staging(
            partition.state,
            read=partition.events,
            now=self._now,
            new_id=self._new_id,
            term=self._term,
        )
        for asked in left:
            asked.outcome = None
        with collector_paused():
            for asked in left:
                try:
                    asked.outcome = staging.decide(asked.wish)
                except Exception as error:
                    asked.outcome = error
                if staging.size_bytes > GROUP_BYTES_MAX:
                    break
        if staging.clock_behind > CLOCK_BEHIND_MAX and not self._has_told_clock:
            self._tell_clock(staging)
        return staging

    def _tell_clock(self, staging: Staging) -> None:
        self._has_told_clock = True
        logger.warning(
            "%s: the clock of this process is %s behind the time of the last event. New events "
            "get that time until the clock has reached it: set right the clock that is wrong",
            self._place,
            staging.clock_behind,
        )

    def _commit(self, staging: Staging, left: Sequence[Asked]) -> None:
        producer, partition = self._producer, self.partition
        assert producer is not None
        alongs = [
            (asked.along, asked.outcome)
            for asked in left
            if asked.along is not None and asked.outcome is not None
        ]
        if not staging.records and not alongs:
            if not partition.is_end(staging.end):  # who refuses must not be a zombie
                raise WriterFenced(doing=f"answer for {self._place}")
            return
        producer.begin()
        producer.put_events(staging.records)
        if alongs:
            self._write_along(staging, producer, alongs)
        producer.commit()
        self._settle(staging, producer)

    def _write_along(
        self,
        staging: Staging,
        producer: FencedProducer,
        alongs: Sequence[tuple[Along, Decided | BaseException]],
    ) -> None:
        """An answer says where the events are: so these are in the log first."""
        producer.flush()
        if staging.records and producer.last_offset < 0:
            producer.commit()  # raises why they are not there
        first = producer.offset_of_first(len(staging.records))
        for along, outcome in alongs:
            if isinstance(outcome, Decided):
                along.write(producer, self._staged_receipt(outcome, staging, producer, first))
            else:
                along.write(producer, outcome)
        alongs[-1][0].end(producer)

    def _staged_receipt(
        self, decided: Decided, staging: Staging, producer: FencedProducer, first: int | None
    ) -> Receipt | Exception:
        def offset_of(seq: int) -> int:
            if seq < staging.first_seq:
                return self.partition.state.offset_of(seq)
            # Whoever waits until this is read has waited for the event.
            return producer.last_offset if first is None else first + seq - staging.first_seq

        return self._told(decided, staging.events_at, offset_of)

    def _settle(self, staging: Staging, producer: FencedProducer) -> None:
        partition, count = self.partition, len(staging.records)
        first = producer.offset_of_first(count)
        if first is None:  # something else was written between: the log says where
            self._look_up(staging)
            return
        with partition.lock:
            if partition.state.seq < staging.first_seq:
                staging.settle(first)
        partition.log.await_committed(partition.number, first + count + 1)
        partition.keep_index()

    def _look_up(self, staging: Staging) -> None:
        self.partition.catch_up()
        if staging.records and not self._is_there(staging):
            brokers = str(self.partition.log.client["bootstrap.servers"])
            reason = "what was committed is not there"
            raise LogNotReached(brokers=brokers, doing=f"write to {self._place}", reason=reason)

    def _is_there(self, staging: Staging) -> bool:
        """Whether a commit that was not answered came through: its first event is in the log."""
        if not staging.records or self.partition.state.seq < staging.first_seq:
            return False
        ours = staging.first_event
        return self.partition.event(staging.first_seq).hash == ours.hash

    # --- answers ------------------------------------------------------------------------------

    def _answered(self, left: Sequence[Asked]) -> list[Asked]:
        """Those that have no outcome yet."""
        for asked in left:
            if asked.outcome is not None and not asked.future.done():
                self._answer(asked, asked.outcome)
        return [asked for asked in left if asked.outcome is None]

    def _answer(self, asked: Asked, outcome: Decided | BaseException) -> None:
        found: Receipt | BaseException
        if isinstance(outcome, Decided):
            partition = self.partition
            found = self._told(outcome, partition.events, partition.state.offset_of)
        else:
            found = outcome
        if isinstance(found, Receipt):
            asked.future.set_result(found)
        else:
            asked.future.set_exception(found)

    def _told(
        self, decided: Decided, read: ReadEvents, offset_of: Callable[[int], int]
    ) -> Receipt | Exception:
        """Who cannot have a receipt is told so alone: the others of the group have theirs."""
        try:
            return self._receipt(decided, read, offset_of)
        except Exception as error:
            return error

    def _receipt(
        self, decided: Decided, read: ReadEvents, offset_of: Callable[[int], int]
    ) -> Receipt:
        partition, ids, seen = self.partition, decided.ids, decided.repeats
        if seen is not None:
            ids = tuple(event.id for event in read(range(seen.first_seq, seen.last_seq + 1)))
        return Receipt(
            topic=partition.log.topic,
            partition=partition.number,
            offset=offset_of(decided.seq) if decided.seq else -1,
            stream=decided.stream,
            version=decided.version,
            seq=decided.seq,
            events=ids,
            is_repeat=seen is not None,
        )
