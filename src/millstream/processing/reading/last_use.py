"""Until when the operators of a job can use an event: an event that none can use is late. Pure.

An operator can use an event until the watermark reaches a time that follows from the event's own:

    window at a fixed place   the end of the last window that the event is in
    session, sliding window   the event's time plus the gap, or the size
    join, deduplication       the event's time: Spark judges each row alone

plus the operator's grace. `jobs/plan_uses.py` finds the operators in a job's plan; the job writes
what it found into a file (docs/formats/job_directory.md), from which its sources read it. Does not
say what becomes of a late event (`lateness.py`). Times are microseconds since 1970.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.base.errors import Corrupt

MS_US = 1_000
# A time that is further away is clipped to this, so that sums stay within 64 bits.
FAR_US = 1 << 61

Times: TypeAlias = npt.NDArray[np.int64]
Places: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUse:
    """Of one operator: `span_us` after the event, or with `every_us` after the start of the last
    window that the event is in.

    `from_1970`: the operator is Spark's own. Spark's watermark is 0 before there is one, and its
    operators take that for a time.
    """

    span_us: int = 0
    every_us: int | None = None
    start_us: int = 0
    from_1970: bool = True

    def until_us(self, times: Times) -> Times:
        """The watermark that ends the use of each event."""
        near = np.clip(times, -FAR_US, FAR_US)
        if self.every_us is not None:
            near = near - (near - self.start_us) % self.every_us
        return near + min(self.span_us, FAR_US)

    def is_over(self, times: Times, watermark_ms: int) -> Places:
        """Whether the watermark has reached that: exactly at it counts as reached."""
        if not watermark_ms and not self.from_1970:
            return np.zeros(len(times), np.bool_)
        return self.until_us(times) <= watermark_ms * MS_US


# Of all operators that a source feeds; None: one of them takes every event, however old.
Uses: TypeAlias = tuple[LastUse, ...] | None
# Where no plan is known: by the event's own time, so that nothing is left for Spark to drop.
BY_EVENT: Uses = (LastUse(),)


def is_late(times: Times, uses: Uses, watermark_ms: int) -> Places:
    """Where the events are that no operator can use any more."""
    late = np.full(len(times), uses is not None)
    for use in uses or ():
        late &= use.is_over(times, watermark_ms)
    return late


def joined(one: Uses, other: Uses) -> Uses:
    """Of a source that feeds both."""
    if one is None or other is None:
        return None
    return tuple(dict.fromkeys((*one, *other)))


class DamagedUses(Corrupt):
    def __init__(self, *, path: str, problem: str) -> None:
        super().__init__(
            f"{path} does not say which events the job can use ({problem}). It is written at each "
            "start of the job: restart the job with `millstream run`"
        )
        self.path, self.problem = path, problem


def encode_uses(uses: Mapping[str, Uses]) -> bytes:
    """By source."""
    facts = {
        source: None if found is None else [asdict(one) for one in found]
        for source, found in uses.items()
    }
    return (json.dumps(facts, indent=2) + "\n").encode()


def read_uses(path: str, source: str) -> Uses:
    """What the file of a job says of one source; without a file every event is judged alone."""
    if not path:
        return BY_EVENT
    try:
        facts: dict[str, Any] = json.loads(Path(path).read_bytes())
        found = facts[source]
        return None if found is None else tuple(LastUse(**one) for one in found)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedUses(path=path, problem=f"{type(error).__name__}: {error}") from None
