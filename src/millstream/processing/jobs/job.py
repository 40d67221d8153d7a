"""What a job is: a function of DataFrames, the names of its inputs, and where its rows go. Pure.

`@app.job`, `@app.view` and `@app.sink` make these, long before Spark starts. A parameter of the
function names a topic or a table (`catalog.py` knows them); it is called with their DataFrames and
returns one. Running it is elsewhere: `job_run.py` runs one, `supervisor.py` all.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.base.declared import (
    TOPIC_NAME_LENGTH_MAX,
    BadDeclaration,
    require_topic_name,
)

# It names a directory, a receipts topic and a view.
JOB_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,199}")
OutputMode = Literal["append", "update"]
OUTPUT_MODES = ("append", "update")
# What else is in the longest name of a topic: _receipts.<app>.<job>.changes.<generation>
RECEIPTS_LETTERS = len("_receipts..") + len(".changes.") + 6


def require_receipts_name(app: str, job: str) -> None:
    """Topics are named after both."""
    most = TOPIC_NAME_LENGTH_MAX - RECEIPTS_LETTERS
    if len(app) + len(job) > most:
        raise BadDeclaration(
            f"the names of app {app} and job {job} have {len(app) + len(job)} letters together: "
            f"give {most} at most, as topics are named after both"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToView:
    """Rows become a view of the job's name; `key` names its rows.

    `store` is the application's choice, for who opens the view; None: the default.
    """

    key: tuple[str, ...]
    store: Any = None
    history_ms: int | None = None

    def __str__(self) -> str:
        return f"a view by {', '.join(self.key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopic:
    """Rows are written into a topic, exactly once."""

    topic: str
    key: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"topic {self.topic}" + (f" by {', '.join(self.key)}" if self.key else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFunction:
    """Every batch is handed to a function of the application, with its receipt.

    A batch can come twice: who writes elsewhere keeps the receipt there, with the rows.
    `is_external`: what it does cannot be taken back, so a rebuild must not do it all again.
    """

    write: Callable[..., None]
    is_external: bool = False

    def __str__(self) -> str:
        return f"function {getattr(self.write, '__name__', self.write)}"


Output = ToView | ToTopic | ToFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`inputs` gives for each parameter of `function` the name of a topic or table.

    `trigger_ms` is the least time between two batches; None: as fast as it goes. `records_max` is
    the most that a batch takes from each topic. `settings` are Spark's, for this job alone.
    `output_mode` is Spark's; None: what the plan needs.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, str]
    output: Output
    trigger_ms: int | None = None
    records_max: int | None = None
    output_mode: OutputMode | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not JOB_NAME.fullmatch(self.name):
            raise BadDeclaration(
                f"{self.name!r} cannot be a job's name: give letters, digits, '_', and after the "
                "first one '.' and '-'"
            )
        if isinstance(self.output, ToTopic):
            require_topic_name(self.output.topic)
        if self.output_mode not in (None, *OUTPUT_MODES):
            raise BadDeclaration(
                f"job {self.name}: mode={self.output_mode!r}: one of {', '.join(OUTPUT_MODES)}"
            )

    @property
    def place(self) -> str:
        """Where its function is written, for messages."""
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(self.function)


def inputs_of(function: Callable[..., Any], given: Mapping[str, str] | None) -> dict[str, str]:
    """The input that each parameter names: its own name, unless `given` has another."""
    given = given or {}
    parameters = inspect.signature(function).parameters.values()
    name = getattr(function, "__name__", repr(function))
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            raise BadDeclaration(
                f"job {name}: parameter {one.name} names no input: give one for each topic"
            )
    wanted = {one.name for one in parameters if one.default is one.empty}
    if strangers := set(given) - {one.name for one in parameters}:
        raise BadDeclaration(f"job {name}: inputs= names {min(strangers)!r}, which is no parameter")
    if not wanted | set(given):
        raise BadDeclaration(f"job {name} has no inputs: its parameters name topics and tables")
    return {one.name: given.get(one.name, one.name) for one in parameters if _is_input(one, given)}


def _is_input(parameter: inspect.Parameter, given: Mapping[str, str]) -> bool:
    """A parameter with a default is the application's own, unless `given` says otherwise."""
    return parameter.default is parameter.empty or parameter.name in given


def code_mark(function: Callable[..., Any]) -> str:
    """Changes when the text of the function does. What it calls is not looked at."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = code.co_code.hex() if code else repr(type(function))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
