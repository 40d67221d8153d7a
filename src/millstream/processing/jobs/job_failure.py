"""Why a job failed, in a sentence, and whether it may succeed later. Pure.

Spark hands on what a Python worker or a callback raised as the text of a traceback. Ours name
their family: what is `Retryable` is tried again. What the application raised is not; nor what
Spark refuses. A worker that died, a broker or an executor that is away are tried again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from millstream.base.errors import MillstreamError, Retryable

TRACEBACK = "Traceback (most recent call last):"
FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)')
RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?", re.DOTALL)
ENDS = ("\n SQLSTATE", " SQLSTATE:", "\n=== Streaming Query", "\n\nJVM stacktrace", "\n\tat ")
OURS = "millstream."
# Python's names for what the JVM raised: its words are in the text.
SPARKS_OWN = ("py4j.", "pyspark.")
CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.*)$", re.MULTILINE)
# Of a call into the JVM, Python's text says only which one it was.
JAVA_CALL = re.compile(r"An error occurred while calling \S+\n: (.*)")
OUR_FILES = f"{Path(__file__).parents[2]}/"
LIBRARIES = ("/pyspark/", "/py4j/", "/site-packages/", "/lib/python3", OUR_FILES)
# Spark's words for what another attempt may not meet.
PASSING = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "PYTHON_WORKER_CRASHED",
    "Connection reset",
    "Connection refused",
    "Broken pipe",
    "ExecutorLostFailure",
    "Lost executor",
    "FetchFailed",
    "java.io.EOFException",
    "java.net.SocketException",
    "SparkOutOfMemoryError",
)
# A view's file, the checkpoint or Spark's own files found no room: Python, the JVM, SQLite, and
# PostgreSQL say it so.
NO_SPACE = (
    "No space left on device",
    "no space left on the disk",
    "Disk quota exceeded",
    "database or disk is full",
    "could not extend file",
)
# Python's own, of an application whose database or service is away.
PASSING_TYPES = (
    "BrokenPipeError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "TimeoutError",
)
# State that cannot be read will not be readable later, unless its storage is away.
STATE_UNREADABLE = "CANNOT_LOAD_STATE_STORE"
PASSING_STORAGE = ("Connection reset", "Connection refused", "Broken pipe", "SocketException")
STATE_FILE = re.compile(r"streaming state file of (?:file:)?(\S+)")
ERROR_CLASS = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_.]+)\] ?")
WRAPPERS = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "PYTHON_EXCEPTION")
# What Spark says of names that nobody gave, in words of the application.
ADVICE = {
    "DUPLICATE_SOURCE_NAMES": (
        "an input is used twice in one plan, as in orders.union(orders). Give the function a "
        'parameter for each use, and say what they are: inputs={"first": "orders", "second": '
        '"orders"}'
    ),
}
MESSAGE_LENGTH_MAX = 1_000
NO_REASON = (
    "Spark's query ended and gave no reason: most likely a Python worker of it was killed, by "
    "somebody or by the system for want of memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """`place` is the line of the application's code, where there is one: "shop.py:12".

    `record` is the one that it failed on, if that was found. `waits_for_space`: a disk is full, so
    that it passes once somebody has made room, be it tomorrow.
    """

    reason: str
    is_passing: bool
    place: str | None = None
    of_application: bool = False
    record: str | None = None
    waits_for_space: bool = False

    def __str__(self) -> str:
        at = f" (at {self.place})" if self.place else ""
        on = f", on {self.record}" if self.record else ""
        return f"{self.reason}{at}{on}"


def failure_from(error: BaseException) -> Failure:
    """Why something failed that was called here, in the driver."""
    if isinstance(error, MillstreamError):
        return Failure(reason=str(error), is_passing=isinstance(error, Retryable))
    return failure_in(str(error), is_passing_type=isinstance(error, ConnectionError))


def failure_in(text: str, *, is_passing_type: bool = False) -> Failure:
    """Why a query failed, by what Spark says of it."""
    if (words := next((one for one in NO_SPACE if one in text), None)) is not None:
        return _full_disk(text, words)
    if TRACEBACK in text:
        return _raised(text.rpartition(TRACEBACK)[2])
    return _of_spark(text, is_passing_type=is_passing_type)


def _full_disk(text: str, words: str) -> Failure:
    line = next(line for line in reversed(text.splitlines()) if words in line)
    reason = (
        f"a disk is full, of the view, the checkpoint or Spark's own files ({_short(line)}). Free "
        "some space: the job continues by itself"
    )
    return Failure(reason=reason, is_passing=True, waits_for_space=True)


def _of_spark(text: str, *, is_passing_type: bool = False) -> Failure:
    if STATE_UNREADABLE in text and not any(words in text for words in PASSING_STORAGE):
        return Failure(reason=_state_reason(text), is_passing=False)
    passing = is_passing_type or any(words in text for words in PASSING)
    causes = [cause for cause in CAUSE.findall(text) if any(words in cause for words in PASSING)]
    reason = _short(causes[0]) if causes else _spark_reason(text)
    if not reason:  # as the JVM's EOFException, when a worker of a source is killed
        return Failure(reason=NO_REASON, is_passing=True)
    return Failure(reason=reason, is_passing=passing)


def _raised(text: str) -> Failure:
    lines = _before_ends(text).strip("\n").split("\n")
    at = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    found = RAISED.fullmatch("\n".join(lines[at:]).strip())
    if found is None:
        return Failure(reason=_short(text), is_passing=False)
    kind = found["type"]
    if kind.startswith(SPARKS_OWN):
        return _of_spark(text)
    known = _error_type(kind)
    if known is not None:
        passing = issubclass(known, Retryable)
        return Failure(reason=_short(found["message"] or kind), is_passing=passing)
    reason = _short(": ".join(part for part in (kind, found["message"]) if part))
    place = _place(lines[:at])
    return Failure(
        reason=reason,
        is_passing=kind in PASSING_TYPES,
        place=place,
        of_application=place is not None,
    )


def _place(lines: list[str]) -> str | None:
    """The last line of the application's own code on the way to the error."""
    frames = [found for line in lines if (found := FRAME.match(line))]
    own = [one for one in frames if not any(part in one["file"] for part in LIBRARIES)]
    return f"{own[-1]['file']}:{own[-1]['line']}" if own else None


def _error_type(name: str) -> type[MillstreamError] | None:
    module, _, leaf = name.rpartition(".")
    if not module.startswith(OURS):
        return None
    try:
        found = getattr(import_module(module), leaf, None)
    except ImportError:  # the application's own, by a name like ours
        return None
    return found if isinstance(found, type) and issubclass(found, MillstreamError) else None


def _state_reason(text: str) -> str:
    """Names the file where Spark does, and what to do next."""
    file = STATE_FILE.search(text)
    last = CAUSE.findall(text)[-1:] or ["no reason given"]
    detail = f"{file[1]} is missing or damaged" if file else last[0] or "a file ends too soon"
    return (
        f"The job's state cannot be read from its checkpoint: {_short(detail)}. Put back a copy of "
        "the checkpoint (`millstream state restore`), or build the job's output from the start of "
        "its topics: `millstream run APP_FILE --rebuild JOB`"
    )


def _before_ends(text: str) -> str:
    for end in ENDS:
        text = text.partition(end)[0]
    return text


def _spark_reason(text: str) -> str:
    """What Spark says, without the classes of errors around it."""
    if advice := next((words for name, words in ADVICE.items() if name in text), None):
        return advice
    if called := JAVA_CALL.search(text):
        causes = [cause for cause in CAUSE.findall(text) if cause]
        return _short(causes[-1] if causes else called[1])
    text = re.sub(r"^.*? terminated with exception: ", "", text, count=1, flags=re.DOTALL)
    found = ERROR_CLASS.match(text)
    while found is not None and found["name"] in WRAPPERS:
        text = text[found.end() :]
        found = ERROR_CLASS.match(text)
    # Behind the sentence Spark draws the plan.
    return _short(_before_ends(text).partition(";\n")[0])


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"


def place_of(function: Callable[..., object], error: BaseException) -> str | None:
    """The line of `function`'s own file that an error came through, last of all."""
    code = getattr(function, "__code__", None)
    own = code.co_filename if code else None
    trace, found = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == own:
            found = f"{own}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
