"""Answers that are a moment old: however many pages are open, the broker is asked once.

An answer is kept for a second, or for some times as long as it took: what is dear is asked less
often. An error is an answer, too: while nobody answers, one page waits and not all. It is kept
for a moment only, however long it took: who comes back is soon seen.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from millstream.base.errors import MillstreamError

T = TypeVar("T")

KEEP_SECONDS_MIN = 1.0
KEEP_TIMES = 5.0
ERROR_KEEP_SECONDS = 2.0
ANSWERS_MAX = 512


@dataclass(frozen=True, slots=True)
class _Answer:
    found: Any
    error: MillstreamError | None
    until: float


@dataclass(slots=True)
class _Question:
    """Who holds `asking` asks, and others wait for that answer. A question may ask another one."""

    asking: threading.RLock = field(default_factory=threading.RLock)
    answer: _Answer | None = None


class Recent:
    """Thread-safe. One question is not asked twice at a time, and waits for no other one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # of the dictionary; never held while something is asked
        self._questions: OrderedDict[Hashable, _Question] = OrderedDict()

    def answer(self, key: Hashable, ask: Callable[[], T], *, times: float = KEEP_TIMES) -> T:
        """`times`: of what the answer took, for how long it is kept."""
        question = self._question(key)
        with question.asking:
            known = question.answer
            if known is None or known.until <= self._clock():
                known = question.answer = self._asked(ask, times)
        if known.error is not None:
            raise known.error
        found: T = known.found
        return found

    def _question(self, key: Hashable) -> _Question:
        with self._lock:
            question = self._questions.setdefault(key, _Question())
            self._questions.move_to_end(key)
            while len(self._questions) > ANSWERS_MAX:
                self._questions.popitem(last=False)
        return question

    def _asked(self, ask: Callable[[], Any], times: float) -> _Answer:
        began = self._clock()
        try:
            found = ask()
        except MillstreamError as error:
            return _Answer(None, error, self._clock() + ERROR_KEEP_SECONDS)
        ended = self._clock()
        return _Answer(found, None, ended + max(KEEP_SECONDS_MIN, times * (ended - began)))

    def forget(self) -> None:
        """Something was changed. What is being asked now may be from before, and is not kept."""
        with self._lock:
            self._questions.clear()
