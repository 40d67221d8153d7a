"""What went wrong, told twice: to the client without the server's paths, to the log in full.

An id joins the two.
"""

import logging
import secrets
from dataclasses import replace

from millstream.web.private_paths import (
    private_paths,
    without_code_directories,
    without_paths,
)
from millstream.web.problems import Problem, problem_of

logger = logging.getLogger(__name__)

ID_BYTES = 6


def reported(error: BaseException, doing: str, folders: tuple[str, ...]) -> Problem:
    """The error as a client may see it. `doing`: the request, for the log."""
    problem = problem_of(error)
    detail = without_paths(without_code_directories(problem.detail), private_paths(folders))
    is_fault = problem.word == "fault"
    if not is_fault and detail == problem.detail:
        return problem
    found = replace(problem, detail=detail, id=secrets.token_hex(ID_BYTES))
    logger.error(
        "problem %s: %s failed: %s", found.id, doing, error, exc_info=error if is_fault else None
    )
    return found
