"""Answers that are a moment old: however many pages are open, the broker is asked once.

An answer is kept for a second, or for some times as long as it took: what is dear is asked less
often. An error is an answer, too: while nobody answers, one page waits and not all.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.base.errors import MillstreamError

T = TypeVar("T")

KEEP_SECONDS_MIN = 1.0
KEEP_TIMES = 5.0
ANSWERS_MAX = 512


@dataclass(frozen=True, slots=True)
class _Answer:
    found: Any
    error: MillstreamError | None
    until: float


class Recent:
    """Thread-safe. One question at a time; the same one is not asked twice meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asking = threading.RLock()
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()

    def answer(self, key: Hashable, ask: Callable[[], T], *, times: float = KEEP_TIMES) -> T:
        """`times`: of what the answer took, for how long it is kept."""
        with self._asking:
            known = self._answers.get(key)
            if known is None or known.until <= self._clock():
                known = self._asked(ask, times)
                self._answers[key] = known
                self._answers.move_to_end(key)
                while len(self._answers) > ANSWERS_MAX:
                    self._answers.popitem(last=False)
        if known.error is not None:
            raise known.error
        found: T = known.found
        return found

    def _asked(self, ask: Callable[[], Any], times: float) -> _Answer:
        began = self._clock()
        found, error = None, None
        try:
            found = ask()
        except MillstreamError as caught:
            error = caught
        ended = self._clock()
        return _Answer(found, error, ended + max(KEEP_SECONDS_MIN, times * (ended - began)))

    def forget(self) -> None:
        """Something was changed."""
        with self._asking:
            self._answers.clear()
