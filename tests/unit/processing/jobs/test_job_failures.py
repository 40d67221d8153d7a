"""Why a job failed, and whether it is tried again."""

import pytest

from millstream.processing.jobs.job_failure import TRACEBACK, failure_from, failure_in, place_of
from millstream.processing.jobs.restart_policy import RestartPolicy
from millstream.processing.kafka_clients import BrokerNotReached, TopicNotFound

STREAM_FAILED = (
    "[STREAM_FAILED] Query [id = 973c, runId = 90bc] terminated with exception: {reason}\n"
    " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 973c]\n"
)
RAISED = """\
[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "/usr/lib/python3.11/runpy.py", line 3, in call
    inner()
  File "/home/ada/shop.py", line 45, in price
    raise ValueError("no price")
             ^^^^^^^^^^^^^^^^^^^
  File "/venv/site-packages/pandas/frame.py", line 12, in apply
    call()
{error}"""


def failed(error: str) -> str:
    return STREAM_FAILED.format(reason=RAISED.format(error=error))


def test_what_the_application_raised_is_told_with_its_line() -> None:
    failure = failure_in(failed("ValueError: no price"))
    assert str(failure) == "ValueError: no price (at /home/ada/shop.py:45)"
    assert failure.of_application
    assert not failure.is_passing


def test_an_error_without_words_has_its_name() -> None:
    assert failure_in(failed("KeyError")).reason == "KeyError"


def test_an_error_of_several_lines_is_told_whole() -> None:
    assert failure_in(failed("ValueError: one\ntwo")).reason == "ValueError: one\ntwo"


def test_ours_that_may_pass_is_tried_again() -> None:
    name = f"{BrokerNotReached.__module__}.BrokerNotReached"
    failure = failure_in(failed(f"{name}: Cannot read: no broker answers at x:1"))
    assert failure.is_passing
    assert failure.reason == "Cannot read: no broker answers at x:1"


def test_an_error_that_is_ours_by_its_name_only_is_the_applications() -> None:
    failure = failure_in(failed("millstream.shop.NoPrice: no price"))
    assert str(failure) == "millstream.shop.NoPrice: no price (at /home/ada/shop.py:45)"


def test_ours_that_cannot_pass_is_not_tried_again() -> None:
    name = f"{TopicNotFound.__module__}.TopicNotFound"
    failure = failure_in(failed(f"{name}: Topic clicks does not exist"))
    assert not failure.is_passing
    assert failure.reason == "Topic clicks does not exist"


@pytest.mark.parametrize(
    "reason",
    [
        "Job aborted due to stage failure: Python worker exited unexpectedly (crashed)",
        "Job aborted: ExecutorLostFailure (executor 1 exited)",
        "java.net.SocketException: Connection reset",
    ],
)
def test_a_worker_that_died_is_tried_again(reason: str) -> None:
    assert failure_in(STREAM_FAILED.format(reason=reason)).is_passing


def test_a_worker_that_died_while_the_driver_waited_for_it_is_tried_again() -> None:
    error = """\
py4j.protocol.Py4JJavaError: An error occurred while calling o537.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 6.0
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). More
"""
    failure = failure_in(failed(error))
    assert failure.is_passing
    assert failure.reason == "Python worker exited unexpectedly (crashed). More"


def test_a_source_s_worker_that_was_killed_is_tried_again_and_named() -> None:
    """Spark's text of it has no reason at all: its error is a bare EOFException."""
    failure = failure_in(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: pages"
    )
    assert failure.is_passing
    assert "a Python worker of it was killed" in failure.reason


def test_an_application_s_words_do_not_make_it_pass() -> None:
    assert not failure_in(failed("ValueError: Connection reset")).is_passing


def test_a_service_of_the_application_that_is_away_is_tried_again() -> None:
    assert failure_in(failed("ConnectionRefusedError: [Errno 111] refused")).is_passing


@pytest.mark.parametrize(
    "said",
    [
        f"{TRACEBACK}\nsqlite3.OperationalError: database or disk is full",
        "Job aborted.\nCaused by: java.io.IOException: No space left on device\n\tat a.b(C.java)",
        f"{TRACEBACK}\npsycopg.errors.DiskFull: could not extend file base/5/16384: full",
        "[STREAM_FAILED] OSError: [Errno 122] Disk quota exceeded: '/data/jobs/sales'",
    ],
)
def test_a_full_disk_of_a_view_or_a_checkpoint_is_waited_for_for_ever(said: str) -> None:
    failure = failure_in(said)
    assert (failure.is_passing, failure.waits_for_space) == (True, True)
    assert failure.reason.startswith("a disk is full, of the view, the checkpoint or Spark's own")
    assert failure.reason.endswith("Free some space: the job continues by itself")
    assert RestartPolicy().delay_ms(10_000, for_ever=True) == RestartPolicy().delay_ms_max


def test_what_spark_refuses_is_told_without_its_wrapping() -> None:
    failure = failure_in(STREAM_FAILED.format(reason="[UNRESOLVED_COLUMN] no column ulr"))
    assert failure.reason == "[UNRESOLVED_COLUMN] no column ulr"
    assert not failure.is_passing


def test_the_plan_behind_a_sentence_is_left_out() -> None:
    reason = "[X] Sorting is not supported;\nSort [n#1 ASC]\n+- Relation"
    assert failure_in(reason).reason == "[X] Sorting is not supported"


def test_an_endless_reason_is_cut() -> None:
    assert len(failure_in("x" * 100_000).reason) == 1_000


def test_an_error_of_the_driver_decides_by_its_family() -> None:
    assert failure_from(BrokerNotReached(brokers="x:1", doing="read")).is_passing
    assert not failure_from(TopicNotFound(topic="x", known=())).is_passing
    assert not failure_from(ValueError("no")).is_passing


def test_the_line_of_a_function_is_the_last_one_of_its_own_file() -> None:
    def raises() -> None:
        int("three")

    with pytest.raises(ValueError) as caught:
        raises()
    line = raises.__code__.co_firstlineno + 1
    assert place_of(raises, caught.value) == f"{__file__}:{line}"


# Restarts


def test_waits_grow_up_to_a_limit_and_then_it_is_given_up() -> None:
    policy = RestartPolicy(first_delay_ms=500, delay_ms_max=3_000, failures_max=5)
    waits = [policy.delay_ms(failures) for failures in range(1, 7)]
    assert waits == [500, 1_000, 2_000, 3_000, 3_000, None]


def test_the_default_gives_a_broker_minutes_to_come_back() -> None:
    policy = RestartPolicy()
    waits = [policy.delay_ms(failures) for failures in range(1, policy.failures_max + 1)]
    assert 120_000 < sum(wait or 0 for wait in waits) < 300_000
    assert policy.delay_ms(policy.failures_max + 1) is None


CALLED = """An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o296.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
"""
STATE = "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE."


def test_state_that_cannot_be_read_is_named_with_the_next_command_and_not_tried_again() -> None:
    missing = failure_in(
        f"{CALLED}{STATE}CANNOT_READ_STREAMING_STATE_FILE] An error occurred during loading state. "
        "Error reading streaming state file of file:/shop/jobs/counts/state/0/0/6.changelog does "
        "not exist. SQLSTATE: 58030\n\tat org.apache.spark.sql\n"
        "Caused by: java.io.FileNotFoundException: File file:/shop/... does not exist\n"
    )
    assert "/shop/jobs/counts/state/0/0/6.changelog is missing or damaged" in missing.reason
    assert "millstream run APP_FILE --rebuild JOB" in missing.reason
    torn = failure_in(
        f"{CALLED}{STATE}UNCATEGORIZED] An error occurred during loading state.  SQLSTATE: 58030\n"
        "Caused by: java.io.EOFException\n"
    )
    assert "The job's state cannot be read from its checkpoint: java.io.EOFException" in torn.reason
    assert (missing.is_passing, torn.is_passing) == (False, False)


def test_state_on_a_storage_that_is_away_is_tried_again() -> None:
    away = failure_in(f"{CALLED}{STATE}UNCATEGORIZED] x\nCaused by: Connection refused\n")
    assert away.is_passing


def test_a_call_into_java_is_told_by_its_cause() -> None:
    failed = "An error occurred while calling o262.start.\n: java.lang.IllegalState: no metadata\n"
    assert failure_in(failed).reason == "java.lang.IllegalState: no metadata"
    assert failure_in(f"{CALLED}Caused by: a.b.C: the disk is on fire\n").reason == (
        "the disk is on fire"
    )
