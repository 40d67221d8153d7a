"""Queues of an application, on our broker and on Apache Kafka."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream import App, Broker, Job, LockLost, Queue
from millstream.base.errors import MillstreamError
from millstream.queues.client_trouble import NoBroker
from millstream.queues.letters import Death, headers_of
from millstream.queues.outbox import PutFailed, PutRefused
from millstream.queues.queue import JobSettled
from millstream.queues.redrive import LetterTooLarge, NoSuchLetter
from millstream.queues.terms import CannotSetUp
from tests.clients.steps import Sent, eventually, produce, unique_name

WITHIN_S = 30.0
LOCK_S = 1.0  # the shortest that both brokers allow in these tests


class Queues:
    """Opens workers of one queue, and closes them all."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self._opened: list[Queue] = []

    def open(self, **terms: Any) -> Queue:
        terms = {"lock": LOCK_S, "retry_delay": 0.05, **terms}
        queue = Queue(self.name, {"bootstrap.servers": self.bootstrap, "log_level": 3}, **terms)
        self._opened.append(queue)
        return queue

    def close(self) -> None:
        for queue in self._opened:
            queue.close()


@pytest.fixture
def queues(bootstrap: str) -> Iterator[Queues]:
    opened = Queues(bootstrap, unique_name("jobs"))
    yield opened
    opened.close()


@pytest.fixture
def queue(queues: Queues) -> Queue:
    return queues.open()


def next_job(queue: Queue) -> Job:
    job = queue.get(WITHIN_S)
    assert job is not None, f"no job within {WITHIN_S} s"
    return job


def fail_once(queue: Queue, error: Exception) -> Job:
    """A worker's function raises on the next job."""
    job = next_job(queue)
    with pytest.raises(type(error)), job:
        raise error
    return job


# --- putting and getting ----------------------------------------------------------------------


def test_a_job_comes_as_it_was_put_and_once(queue: Queue) -> None:
    receipt = queue.put({"user": 7}, key="ada", headers={"trace": "x", "none": None})
    with next_job(queue) as job:
        assert (job.value, job.key) == ({"user": 7}, "ada")
        assert job.headers == {"trace": b"x", "none": None}
        assert job.delivery_count == 1
        assert job.id == f"{queue.name}-{receipt.partition}-{receipt.offset}"
    assert queue.get(0.2) is None


def test_jobs_that_were_put_before_the_first_worker_came_count(queues: Queues) -> None:
    queues.open().put_many(range(3))
    worker = queues.open()
    taken = [next_job(worker) for _ in range(3)]
    assert sorted(job.value for job in taken) == [0, 1, 2]


def test_many_threads_of_two_workers_do_each_job_once(queues: Queues) -> None:
    queues.open(partitions=2).put_many(range(200))
    done: list[int] = []

    def work(queue: Queue) -> None:
        while len(done) < 200:
            job = queue.get(0.2)
            if job is not None:
                with job:
                    done.append(job.value)

    workers = [queues.open(prefetch=prefetch) for prefetch in (0, 10)]
    threads = [threading.Thread(target=work, args=[one]) for one in workers * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queues.open().get(0.2) is None
    assert Counter(done) == Counter(range(200))


def test_iterating_ends_when_the_queue_is_closed(queue: Queue) -> None:
    queue.put_many(range(3))
    seen = []
    for job in queue:
        with job:
            seen.append(job.value)
        if len(seen) == 3:
            threading.Timer(0.1, queue.close).start()
    assert sorted(seen) == [0, 1, 2]


def test_a_job_that_fails_does_not_end_the_work(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    queue, done = queues.open(attempts_max=2), []
    queue.put_many([1, 0, 2])
    produce(queues.bootstrap, queues.name, [Sent(value=b"not JSON")])
    queue.work(lambda value: done.append(2 // value), timeout=2)
    assert sorted(done) == [1, 2]
    failed = [one.message for one in caplog.records if "failed, delivery" in one.message]
    assert len(failed) == 4
    reasons = sorted(letter.death.reason.split(": ")[1] for letter in queue.dead_letters())
    assert reasons == ["BadValue", "ZeroDivisionError"]
    assert all(f"job {letter.id} failed" in caplog.text for letter in queue.dead_letters())


def test_work_ends_when_the_queue_is_closed(queue: Queue) -> None:
    worker = threading.Thread(target=queue.work, args=(print,))
    worker.start()
    queue.put(1)
    queue.close()
    worker.join(WITHIN_S)
    assert not worker.is_alive()


def test_a_queue_that_is_dropped_unclosed_ends_its_threads(queues: Queues) -> None:
    queue = Queue(queues.name, {"bootstrap.servers": queues.bootstrap, "log_level": 3})
    queue.put(1)
    next_job(queue).ack()
    ours = [one for one in threading.enumerate() if one.name.startswith("millstream-")]
    assert len(ours) >= 2
    del queue
    eventually(lambda: not any(one.is_alive() for one in ours), what="the end of its threads")


def test_waiting_for_a_job_ends_in_time(queue: Queue) -> None:
    queue.get(WITHIN_S / 100)  # the first one joins the group
    started = time.monotonic()
    assert queue.get(0.2) is None
    assert 0.2 <= time.monotonic() - started < WITHIN_S


def test_a_job_is_settled_once(queue: Queue) -> None:
    queue.put(1)
    job = next_job(queue)
    job.ack()
    with pytest.raises(JobSettled, match="acknowledged"):
        job.release()


# --- again ------------------------------------------------------------------------------------


def test_a_released_job_comes_again_and_counts(queue: Queue) -> None:
    queue.put(1)
    next_job(queue).release()
    assert next_job(queue).delivery_count == 2


def test_a_job_that_is_put_off_comes_after_its_delay_beyond_its_lock(queues: Queues) -> None:
    queue, other = queues.open(), queues.open()
    queue.put(1)
    next_job(queue).release(delay=1.8 * LOCK_S)
    started = time.monotonic()
    job = next_job(other)
    assert time.monotonic() - started > 1.6 * LOCK_S
    assert job.delivery_count == 2


def test_a_job_is_renewed_for_as_long_as_it_is_held(queues: Queues) -> None:
    queue, other = queues.open(), queues.open()
    queue.put(1)
    job = next_job(queue)
    assert other.get(2.5 * LOCK_S) is None
    job.ack()
    assert other.get(0.2) is None


def test_what_was_fetched_ahead_and_not_taken_goes_to_others(queues: Queues) -> None:
    greedy, other = queues.open(prefetch=9), queues.open()
    greedy.put_many(range(5))
    held = next_job(greedy)
    others = [next_job(other) for _ in range(4)]
    assert {job.value for job in others} == {*range(5)} - {held.value}
    for job in [held, *others]:
        job.ack()


def test_a_job_that_is_dropped_unsettled_comes_again_and_is_named(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(1)
    dropped = next_job(queue).id  # and nobody has the job
    again = next_job(queue)
    assert (again.id, again.delivery_count) == (dropped, 2)
    assert f"job {dropped} was dropped unsettled" in caplog.text
    assert "`with job:`" in caplog.text
    again.ack()


def test_closing_gives_back_what_is_held_at_once(queues: Queues) -> None:
    queue, other = queues.open(lock=None), queues.open(lock=None)  # half a minute
    queue.put(1)
    job = next_job(queue)
    queue.close()
    assert next_job(other).id == job.id
    with pytest.raises(MillstreamError, match="closed"):
        job.ack()


def test_a_killed_worker_s_job_goes_to_another_before_its_lock_runs_out(queues: Queues) -> None:
    queue = queues.open(lock=2 * WITHIN_S)
    queue.put(1)
    with worker_process(queues, lock_s=2 * WITHIN_S) as process:
        held = read_line(process)
        process.kill()
        assert next_job(queue).id == held


def test_a_frozen_worker_s_lock_runs_out_and_it_is_told(queues: Queues) -> None:
    queue = queues.open()
    queue.put(1)
    with worker_process(queues) as process:
        held = read_line(process)
        process.send_signal(signal.SIGSTOP)
        job = next_job(queue)
        assert (job.id, job.delivery_count) == (held, 2)
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert read_line(process) == "lost"
        job.ack()
    assert queue.get(0.2) is None


def worker_process(queues: Queues, *, lock_s: float = LOCK_S) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.clients.queue_worker"]
    return subprocess.Popen(
        [*command, queues.bootstrap, queues.name, str(lock_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- giving up --------------------------------------------------------------------------------


def test_a_rejected_job_is_a_dead_letter_with_its_reason(queue: Queue) -> None:
    queue.put({"user": 7}, key="ada", headers={"trace": "x"})
    job = next_job(queue)
    job.reject("no such user")
    [letter] = queue.dead_letters()
    assert (letter.id, letter.death.reason) == (job.id, "no such user")
    assert (letter.key, letter.value) == (b"ada", {"user": 7})
    assert letter.headers == (("trace", b"x"),)
    assert letter.death.put_ms == job.put_ms
    assert queue.get(0.2) is None


def test_a_job_that_keeps_failing_is_a_dead_letter_with_the_last_error(queues: Queues) -> None:
    queue = queues.open(attempts_max=2)
    queue.put(1)
    fail_once(queue, ValueError("first"))
    fail_once(queue, ValueError("no such user"))
    [letter] = queue.dead_letters()
    assert letter.death.reason == "given up after 2 deliveries: ValueError: no such user"
    assert letter.death.deliveries == 2
    assert queue.get(0.2) is None


def test_a_value_that_cannot_be_read_is_given_up_and_stops_nothing(
    queues: Queues, bootstrap: str
) -> None:
    queue = queues.open(attempts_max=1)
    queue.put("good")
    produce(bootstrap, queue.name, [Sent(value=b"{")])
    for _ in range(2):
        job = next_job(queue)
        try:
            with job:
                assert job.value == "good"
        except MillstreamError:
            assert job.raw_value == b"{"
    [letter] = queue.dead_letters()
    assert "BadValue" in letter.death.reason


def test_a_job_that_nobody_answers_for_is_a_dead_letter_in_the_end(queues: Queues) -> None:
    """Its workers froze. The queue's limit is one delivery, the broker's is higher."""
    queue = queues.open(attempts_max=1)
    queue.put(1)
    with worker_process(queues) as process:
        held = read_line(process)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: queue.get(0.3) is None and queue.dead_letters() != [], what="a letter")
        [letter] = queue.dead_letters()
        assert letter.id == held
        assert "without an answer" in letter.death.reason
        process.kill()


def test_a_dead_letter_is_put_back_once_however_often_it_is_asked_for(queues: Queues) -> None:
    queue = queues.open()
    queue.put_many(["a", "b"])
    for _ in range(2):
        next_job(queue).reject("no")
    first, second = queue.dead_letters()
    assert queue.redrive([first.id]) == [first.id]
    assert queue.redrive() == [second.id]
    assert queue.redrive() == []
    with pytest.raises(NoSuchLetter):
        queue.redrive(["jobs-0-999"])
    back = [next_job(queue) for _ in range(2)]
    assert {job.value for job in back} == {"a", "b"}
    assert queue.get(0.2) is None
    for job in back:
        job.ack()
    assert all(letter.redriven_ms is not None for letter in queue.dead_letters())


def test_a_job_that_dies_again_tells_of_both_deaths(queue: Queue) -> None:
    queue.put(1)
    first = next_job(queue)
    first.reject("first")
    queue.redrive()
    job = next_job(queue)
    assert [death.reason for death in job.history] == ["first"]
    job.reject("second")
    letter = queue.dead_letters()[-1]
    assert (letter.id, letter.death.reason) == (job.id, "second")
    assert [death.id for death in letter.history] == [first.id]


# --- what goes wrong --------------------------------------------------------------------------


def test_a_job_too_large_for_a_letter_stops_nothing(queues: Queues) -> None:
    queue = queues.open(values="bytes", attempts_max=1)
    with pytest.raises(PutRefused, match="too large"):
        queue.put(b"x" * 1_000_001)
    queue.put(b"x" * 999_900)  # with the headers of a letter it is over librdkafka's limit
    fail_once(queue, ValueError("no"))
    queue.put(b"small")
    assert next_job(queue).value == b"small"


def test_the_largest_job_that_its_topic_takes_can_be_a_letter(queues: Queues) -> None:
    limits = {"bootstrap.servers": queues.bootstrap, "message.max.bytes": 1_100_000}
    with Queue(queues.name, limits, values="bytes") as queue:
        queue.put(b"x" * 1_048_400)
        next_job(queue).reject("no")
        assert [letter.death.reason for letter in queue.dead_letters()] == ["no"]


def test_a_letter_that_is_too_large_to_be_put_back_is_named_and_holds_up_nobody(
    queues: Queues,
) -> None:
    queue = queues.open()
    queue.put("a")
    next_job(queue).reject("no")
    death = Death(
        topic=queue.name, partition=0, offset=9, group=queue.terms.group, deliveries=1, reason="no"
    )
    letter = Sent(value=b"x" * 999_990, headers=headers_of(death))
    limits: dict[str, Any] = {"message.max.bytes": 1_040_000}
    produce(queues.bootstrap, queue.terms.dead_topic, [letter], limits)
    with pytest.raises(LetterTooLarge, match=f"{queue.name}-0-9"):
        queue.redrive()
    queue.put("b")
    assert next_job(queue).value == "b"
    assert len(queue.redrive([f"{queue.name}-0-0"])) == 1


def test_a_lock_that_the_broker_refuses_is_an_error_that_says_so(queues: Queues) -> None:
    with pytest.raises(CannotSetUp, match=r"share\.record\.lock\.duration\.ms"):
        refuse_a_lock(queues.open())


def refuse_a_lock(queue: Queue) -> None:
    """Of a second the queue itself takes one; a broker may want more."""
    queue.terms = replace(queue.terms, lock_ms=1)
    queue.put(1)


def test_a_broker_that_restarts_takes_the_locks_with_it(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, App("shop", brokers=broker.bootstrap) as app:
        queue = app.queue("jobs")
        queue.put(1)
        job = next_job(queue)
        broker.kill()
        broker.start()
        with pytest.raises(LockLost, match=f"job {job.id}: its lock is lost"):
            job.ack()
        with next_job(queue) as again:
            assert again.id == job.id


def test_an_app_keeps_its_jobs_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_BROKERS", raising=False)
    with App("shop") as app:
        app.queue("jobs").put("over night")
    assert (tmp_path / "shop.millstream").is_dir()
    with App("shop") as app, next_job(app.queue("jobs")) as job:
        assert job.value == "over night"


def test_an_app_is_pointed_at_another_broker_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_BROKERS", "broker.example:9092")
    with App("shop") as app:
        assert app.bootstrap == "broker.example:9092"
    assert not (tmp_path / "shop.millstream").exists()


def test_a_broker_that_goes_away_is_told_at_once_and_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("millstream.queues.outbox.DELIVERY_MS_MAX", 2_000)
    with Broker(tmp_path) as broker, App("shop", brokers=broker.bootstrap) as app:
        queue = app.queue("jobs")
        queue.put(1)
        broker.kill()
        with pytest.raises(PutFailed, match=f"no broker answers at {app.bootstrap}"):
            queue.put(2)
        assert "no broker at" in caplog.text


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.queues.terms.CONNECT_SECONDS_MAX", 0.2)
    queue = Queue("jobs", {"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(NoBroker, match=r"127\.0\.0\.1:1"):
        queue.put(1)
