"""Jobs side by side: who starts when, and how they end. The jobs only pretend to run."""

import threading
from typing import Any

from millstream.processing.jobs.supervisor import Supervisor
from tests.support.pretended_run import PretendedRun
from tests.support.waiting import eventually


def supervised(*runs: PretendedRun, **terms: Any) -> tuple[Supervisor, threading.Thread]:
    supervisor = Supervisor(list[Any](runs))
    thread = threading.Thread(target=lambda: supervisor.run(**terms))
    thread.start()
    return supervisor, thread


def test_a_job_starts_when_the_one_before_has_done_a_batch() -> None:
    first, second, third = (PretendedRun(name) for name in ("first", "second", "third"))
    supervisor, thread = supervised(first, second, third)
    eventually(first.is_started.is_set, what="the first job", within_s=30)
    first.do_a_batch()
    eventually(second.is_started.is_set, what="the second job", within_s=30)
    second.end("failed")
    eventually(third.is_started.is_set, what="the third job", within_s=30)
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_a_job_that_has_nothing_to_do_does_not_hold_up_the_next() -> None:
    first, second = PretendedRun("first"), PretendedRun("second")
    first.end("running")
    supervisor, thread = supervised(first, second)
    eventually(second.is_started.is_set, what="the second job", within_s=40)
    assert not first.progress.batch is not None
    supervisor.stop()
    thread.join(30)


def test_a_stop_while_jobs_start_ends_all() -> None:
    first, second = PretendedRun("first"), PretendedRun("second")
    supervisor, thread = supervised(first, second)
    eventually(first.is_started.is_set, what="the first job", within_s=30)
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert second.is_started.is_set(), "it was started, and stopped at once"
    assert supervisor.was_stopped


def test_jobs_that_end_by_themselves_were_not_stopped() -> None:
    done = PretendedRun("done")
    supervisor, thread = supervised(done)
    done.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert not supervisor.was_stopped


def test_a_job_that_runs_is_asked_to_begin_again() -> None:
    run = PretendedRun("one")
    supervisor, thread = supervised(run)
    eventually(run.is_started.is_set, what="the job", within_s=30)
    supervisor.restart("one")
    assert run.is_restart_asked.is_set()
    supervisor.stop()
    thread.join(30)


class EndingRun(PretendedRun):
    """Ends at once, as one that failed for good."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        self.end("failed")


def test_a_job_that_has_ended_is_begun_again_while_its_supervisor_stays() -> None:
    run = EndingRun("one")
    supervisor, thread = supervised(run, stays=True)
    eventually(lambda: run.runs == 1 and not supervisor._is_any_alive, what="its end", within_s=30)
    supervisor.restart("one")
    eventually(lambda: run.runs == 2, what="the second run", within_s=30)
    assert thread.is_alive()
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()
    supervisor.restart("one")
    assert run.runs == 2, "what was stopped stays so"


def test_a_job_that_has_not_begun_is_not_begun_twice() -> None:
    run = EndingRun("one")
    supervisor = Supervisor([run])  # type: ignore[list-item]
    supervisor.restart("one")
    assert run.runs == 0
