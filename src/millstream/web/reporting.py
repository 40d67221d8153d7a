"""What went wrong, told twice: to the client without the server's paths, to the log in full.

An id joins the two. A fault has its line each time; a refusal whose text lost a path has one a
minute, for each request and sort of error, as clients can cause those as often as they want. What
a request itself says wrong (`Problem`) has none: its words are the client's.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace

from millstream.base.diagnostics import in_one_line
from millstream.base.rare_lines import RARE_SECONDS
from millstream.web.private_paths import (
    private_paths,
    without_code_directories,
    without_paths,
)
from millstream.web.problems import Problem, problem_of

logger = logging.getLogger(__name__)

ID_BYTES = 6


class Reports:
    """Of one server. `folders`: whose names no client is told. `seconds` is a monotonic clock."""

    def __init__(self, folders: tuple[str, ...], *, seconds: Callable[[], float]) -> None:
        self._folders, self._seconds = folders, seconds
        self._said_at: dict[tuple[str, type], float] = {}

    def report(self, error: BaseException, doing: str) -> Problem:
        """The error as a client may see it. `doing`: the request in words of the code, for the
        log."""
        problem = problem_of(error)
        text = without_code_directories(problem.detail)
        found = replace(problem, detail=without_paths(text, private_paths(self._folders)))
        if not self._has_a_line(error, doing, found, problem):
            return found
        found = replace(found, id=secrets.token_hex(ID_BYTES))
        is_fault = found.word == "fault"
        logger.error(
            "problem %s: %s failed: %s",
            found.id, doing, in_one_line(str(error)), exc_info=error if is_fault else None,
        )  # fmt: skip
        return found

    def _has_a_line(
        self, error: BaseException, doing: str, found: Problem, problem: Problem
    ) -> bool:
        if found.word == "fault":
            return True
        if isinstance(error, Problem) or found.detail == problem.detail:
            return False
        sort, now = (doing, type(error)), self._seconds()
        if now - self._said_at.get(sort, -RARE_SECONDS) < RARE_SECONDS:
            return False
        self._said_at[sort] = now
        return True
