"""`Queue` and `Job`: what an application writes. A queue is a topic and a share group over it.

    queue.put({"user": 7})
    queue.work(function)  # or job by job: for job in queue: with job: ...

Every job is delivered at least once, to one worker at a time, until it is acknowledged, or given up
and kept as a dead letter. Nothing here is in order: docs/guides/messaging.md.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from millstream.base.closing import Closing
from millstream.base.errors import Rejected
from millstream.base.record import Header, Record
from millstream.queues.access import access_from
from millstream.queues.acknowledgements import Place, Settlement
from millstream.queues.asked import BadTerms, count, queue_name, seconds, several
from millstream.queues.deliveries import Delivery
from millstream.queues.held_jobs import TooManyPutOff
from millstream.queues.leader_link import LockLost
from millstream.queues.letters import (
    DeadLetter,
    Death,
    application_headers,
    deaths_in,
    letter_record,
)
from millstream.queues.outbox import Outbox, PutFailed, PutRefused, Receipt
from millstream.queues.terms import DELIVERIES_MAX, QueueTerms, set_up
from millstream.queues.values import (
    KINDS,
    BadValue,
    ValueKind,
    key_to_bytes,
    value_from_bytes,
    value_to_bytes,
)
from millstream.queues.worker import Worker, WorkerClosed

logger = logging.getLogger(__name__)

Headers = Mapping[str, str | bytes | None]

DELAY_SECONDS_MAX = 24 * 3600.0
RETRY_DELAY_SECONDS_MAX = 600.0
# Kafka's bounds for share.record.lock.duration.ms; a broker may have narrower ones.
LOCK_SECONDS_MIN, LOCK_SECONDS_MAX = 1.0, 3600.0
GET_SECONDS_MAX = 365 * 24 * 3600.0  # None waits longer
PARTITIONS_MAX = 10_000
PREFETCH_MAX = 1_000


class JobSettled(Rejected):
    def __init__(self, *, job: str, how: str) -> None:
        super().__init__(f"job {job} was settled before: {how}")
        self.job, self.how = job, how


class Job:
    """One delivery of one job, locked for this worker until it is settled or given back.

    The lock is renewed for as long as the process lives. Settle it once: `ack`, `release` or
    `reject`, each of which raises LockLost if the lock was lost, or use it as a context manager.
    One that is dropped unsettled is released.
    """

    def __init__(self, queue: "Queue", delivery: Delivery) -> None:
        self._queue, self._delivery = queue, delivery
        self._settled = ""

    @property
    def id(self) -> str:
        """The same in every delivery: the queue's topic, partition and offset."""
        return self._queue._job_id(self._delivery.place)

    @property
    def value(self) -> Any:
        """Decoded when it is asked for: BadValue if it is not what the queue holds."""
        return value_from_bytes(self._delivery.record.value, self._queue.values)

    @property
    def raw_value(self) -> bytes | None:
        return self._delivery.record.value

    @property
    def key(self) -> str | None:
        key = self._delivery.record.key
        return None if key is None else key.decode("utf-8", "replace")

    @property
    def headers(self) -> dict[str, bytes | None]:
        return dict(application_headers(self._delivery.record.headers))

    @property
    def delivery_count(self) -> int:
        """1 the first time. More after a release, a lost lock or a crash of its worker."""
        return self._delivery.count

    @property
    def put_ms(self) -> int:
        """When it was put, in milliseconds since 1970."""
        return self._delivery.record.timestamp_ms

    @property
    def history(self) -> tuple[Death, ...]:
        """The times that it was given up, and put back from the dead letters."""
        return tuple(deaths_in(self._delivery.record.headers))

    def __repr__(self) -> str:
        return f"<Job {self.id}, delivery {self.delivery_count}, {self._settled or 'held'}>"

    def ack(self) -> None:
        """Done. It is never delivered again once this returns."""
        self._settle("acknowledged")
        self._queue._worker().settle(self._delivery, Settlement.ACCEPT)

    def release(self, delay: float | None = None, *, reason: str = "") -> None:
        """Not done: deliver it again, after `delay` seconds, to any worker.

        While it is put off this worker holds its lock; if the worker ends before, the job comes
        back earlier. The last of `attempts_max` deliveries makes it a dead letter instead.
        """
        if self.delivery_count >= self._queue.attempts_max:
            words = f"given up after {self.delivery_count} deliveries"
            return self.reject(f"{words}: {reason}" if reason else words)
        if delay is not None and seconds("delay", delay, least=0, most=DELAY_SECONDS_MAX) > 0:
            return self._put_off(delay)
        self._settle("released")
        return self._queue._worker().settle(self._delivery, Settlement.RELEASE)

    def _put_off(self, delay: float) -> None:
        self._settle("put off")
        try:
            self._queue._worker().put_off(self._delivery, int(delay * 1000))
        except TooManyPutOff:
            self._settled = ""
            raise

    def reject(self, reason: str) -> None:
        """Never deliver it again: keep it as a dead letter, with the reason."""
        self._settle("rejected")
        # First the letter, then the end of the job: a crash in between repeats the letter, which
        # is known by its id, and loses nothing. The job is *accepted*, as it has been dealt with:
        # rejected, the broker would write a letter of its own.
        try:
            self._queue._write_letter(self._delivery, reason)
        except BaseException:
            self._settled = ""
            raise
        self._queue._worker().settle(self._delivery, Settlement.ACCEPT)

    def _settle(self, how: str) -> None:
        if self._settled:
            raise JobSettled(job=self.id, how=self._settled)
        self._settled = how

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Acknowledged at the end of the block; released, for a later try, by an exception."""
        if self._settled:
            return
        if error is None:
            self.ack()
        elif isinstance(error, Exception):
            self._fail(error)
        else:  # Ctrl-C, an exit: the job is not to blame
            self._give_back()

    def _fail(self, error: Exception) -> None:
        delay = self._queue.retry_delay * 2 ** (self.delivery_count - 1)
        reason = f"{type(error).__name__}: {error}"
        try:
            self.release(min(delay, RETRY_DELAY_SECONDS_MAX), reason=reason)
        except LockLost:
            pass  # it comes again anyway; the caller's own error is the one to see
        except (TooManyPutOff, PutFailed, PutRefused):
            self._give_back()

    def _give_back(self) -> None:
        """Whatever its count: the next worker that gets it looks at that."""
        self._settle("released")
        with contextlib.suppress(LockLost):
            self._queue._worker().settle(self._delivery, Settlement.RELEASE)

    def __del__(self) -> None:
        """Nobody can settle it any more: others shall have it."""
        if not self._settled:
            self._queue._abandon(self._delivery)


class Queue(Closing):
    """A work queue. Any thread may put and get; close it, or use it as a context manager.

    `config` is librdkafka's: bootstrap.servers, security.protocol and its like. The first put makes
    the topics `name` and `name.dead`, and sets up the group `queue.name`, where they are missing.
    """

    _outbox: Outbox | None = None
    _running: Worker | None = None

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        *,
        values: ValueKind = "json",
        attempts_max: int = 5,
        lock: float | None = None,
        retry_delay: float = 1.0,
        partitions: int | None = None,
        prefetch: int = 0,
        set_up: bool = True,
    ) -> None:
        if values not in KINDS:
            raise BadTerms(f"values={values!r}: give one of {', '.join(KINDS)}")
        if lock is not None:
            seconds("lock", lock, least=LOCK_SECONDS_MIN, most=LOCK_SECONDS_MAX)
        if partitions is not None:
            count("partitions", partitions, least=1, most=PARTITIONS_MAX)
        self.name, self.values = queue_name(name), values
        self.attempts_max = count("attempts_max", attempts_max, least=1, most=DELIVERIES_MAX)
        self.retry_delay = seconds(
            "retry_delay", retry_delay, least=0, most=RETRY_DELAY_SECONDS_MAX
        )
        self.terms = QueueTerms(
            name=name,
            partitions=partitions,
            lock_ms=None if lock is None else int(lock * 1000),
            attempts_max=attempts_max,
        )
        self._config = dict(config)
        self._prefetch = count("prefetch", prefetch, least=0, most=PREFETCH_MAX)
        self._access = access_from(config)
        self._lock = threading.RLock()
        self._is_set_up = not set_up
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Queue {self.name} at {self._access}>"

    # --- putting ------------------------------------------------------------------------------

    def put(
        self, value: Any, *, key: str | bytes | None = None, headers: Headers | None = None
    ) -> Receipt:
        """Durable when it returns. Jobs of one key lie in one partition."""
        [receipt] = self._put([self._record(value, key, headers)])
        return receipt

    def put_many(self, values: Iterable[Any], *, key: str | bytes | None = None) -> list[Receipt]:
        """Much quicker than one by one: all are sent, then all are waited for."""
        return self._put([self._record(value, key, None) for value in several(values)])

    def _put(self, records: list[Record]) -> list[Receipt]:
        return self._sender().put(self.name, records)

    def _record(self, value: Any, key: str | bytes | None, headers: Headers | None) -> Record:
        return Record(
            key=key_to_bytes(key),
            value=value_to_bytes(value, self.values),
            headers=tuple(_header(*item) for item in (headers or {}).items()),
        )

    # --- getting ------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> Job | None:
        """The next job, or None: no job within `timeout` seconds, or the queue was closed.

        The first call joins the queue's group, which counts in addition.
        """
        if timeout is not None:
            seconds("timeout", timeout, least=0, most=GET_SECONDS_MAX)
        while True:
            delivery = self._worker().get(None if timeout is None else int(timeout * 1000))
            if delivery is None:
                return None
            job = Job(self, delivery)
            if delivery.count <= self.attempts_max:
                return job
            # Its workers froze or lost their locks, so nobody could give it up before.
            self._give_up(job)

    def _give_up(self, job: Job) -> None:
        """If no letter can be written, it goes back: at its own limit the broker writes one."""
        try:
            job.reject(f"given up: delivered {job.delivery_count - 1} times without an answer")
        except LockLost:
            pass
        except (PutFailed, PutRefused) as error:
            logger.error("queue %s: no dead letter of job %s: %s", self.name, job.id, error)
            job._give_back()

    def __iter__(self) -> Iterator[Job]:
        """Jobs as they come, until the queue is closed."""
        while not self._is_closed:
            try:
                job = self.get()
            except WorkerClosed:
                return
            if job is not None:
                yield job

    def work(self, function: Callable[[Any], object], *, timeout: float | None = None) -> None:
        """Call `function` with the value of each job, for ever, or until none came for `timeout`
        seconds. A job at which it raises is tried again later, or given up: as in `with job:`; it
        is told in the diagnostics, and the next one's turn comes. Closing the queue ends it."""
        while not self._is_closed:
            try:
                job = self.get(timeout)
            except WorkerClosed:
                return
            if job is None and timeout is not None:
                return
            if job is not None:
                self._do(job, function)

    def _do(self, job: Job, function: Callable[[Any], object]) -> None:
        try:
            with job:
                function(job.value)
        except Exception:
            logger.exception(
                "queue %s: job %s failed, delivery %d of %d",
                self.name,
                job.id,
                job.delivery_count,
                self.attempts_max,
            )

    # --- dead letters -------------------------------------------------------------------------

    def dead_letters(self) -> list[DeadLetter]:
        """Jobs that were given up, the oldest first, also those that were put back since."""
        from millstream.queues.redrive import read_letters

        self._set_up()
        letters = read_letters(self.terms, self._config)
        return [replace(letter, values=self.values) for letter in letters]

    def redrive(self, ids: Iterable[str] | None = None) -> list[str]:
        """Put dead letters back into the queue, all or those named: each once, however often this
        is called. Returns the ids of those that this call has put back."""
        from millstream.queues.redrive import redrive

        self._set_up()
        return redrive(self.terms, self._config, None if ids is None else [*ids])

    def _write_letter(self, delivery: Delivery, reason: str) -> None:
        death = Death(
            topic=self.name,
            partition=delivery.place.partition.number,
            offset=delivery.place.offset,
            group=self.terms.group,
            deliveries=delivery.count,
            reason=reason,
            member=self._worker().member.member_id,
            put_ms=delivery.record.timestamp_ms,
        )
        self._sender().put(self.terms.dead_topic, [letter_record(delivery.record, death)])

    def _abandon(self, delivery: Delivery) -> None:
        worker = self._running
        if worker is not None and worker.abandon(delivery):
            logger.warning(
                "queue %s: job %s was dropped unsettled, and comes again: use `with job:`, or "
                "settle it with ack(), release() or reject()",
                self.name,
                self._job_id(delivery.place),
            )

    def _job_id(self, place: Place) -> str:
        return f"{self.name}-{place.partition.number}-{place.offset}"

    # --- its life -----------------------------------------------------------------------------

    def close(self) -> None:
        """What is held is given back at once; what was put is on disk."""
        with self._lock:
            self._is_closed = True
            worker, outbox = self._running, self._outbox
        if worker is not None:
            worker.close()
        if outbox is not None:
            outbox.close()

    def __del__(self) -> None:
        """Dropped unclosed: its threads end by themselves, without being waited for."""
        for running in (self._running, self._outbox):
            if running is not None:
                running.end()

    def _set_up(self) -> None:
        with self._lock:
            if self._is_closed:
                raise WorkerClosed(queue=self.name)
            if not self._is_set_up:
                set_up(self.terms, self._config)
                self._is_set_up = True

    def _sender(self) -> Outbox:
        self._set_up()
        with self._lock:
            if self._outbox is not None and self._outbox.is_broken:
                self._outbox.end()
                self._outbox = None
            if self._outbox is None:
                self._outbox = Outbox(f"queue {self.name}", self._config)
            return self._outbox

    def _worker(self) -> Worker:
        self._set_up()
        with self._lock:
            if self._running is None:
                self._running = Worker(
                    self._access,
                    group=self.terms.group,
                    topic=self.name,
                    prefetch=self._prefetch,
                )
            return self._running


def _header(name: str, value: str | bytes | None) -> Header:
    if not isinstance(value, str | bytes | None):
        raise BadValue(kind="headers", reason=f"{name} is {type(value).__name__}")
    return name, value.encode() if isinstance(value, str) else value
