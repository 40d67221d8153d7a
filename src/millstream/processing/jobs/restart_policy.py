"""When a job that failed is started again: soon at first, then later and later. Pure."""

from dataclasses import dataclass

from millstream.base.quantity import SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Each failure in a row doubles the wait. A batch that succeeds ends the row.

    With these numbers a job gives up after some 4 minutes of waiting, and each attempt is itself
    patient with a broker that is away.
    """

    first_delay_ms: int = SECOND_MS // 2
    delay_ms_max: int = 30 * SECOND_MS
    failures_max: int = 12

    def delay_ms(self, failures: int, *, for_ever: bool = False) -> int | None:
        """How long to wait after so many failures in a row; None: it is given up."""
        if for_ever:
            failures = min(failures, self.failures_max)
        if failures > self.failures_max:
            return None
        return min(self.delay_ms_max, self.first_delay_ms << (failures - 1))
