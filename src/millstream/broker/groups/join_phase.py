"""The time that members have to join before the next generation starts without them."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class JoinPhase:
    """Ends at `deadline_ms`, or before it when everybody has joined.

    The initial one, of a group that was empty, cannot know who everybody is. It lasts for
    `delay_ms`, and again as long as newcomers keep coming, but never beyond `end_ms`.
    """

    deadline_ms: int
    end_ms: int
    delay_ms: int = 0
    has_newcomers: bool = False

    @classmethod
    def initial(cls, *, now_ms: int, delay_ms: int, timeout_ms: int) -> "JoinPhase":
        end_ms = now_ms + max(delay_ms, timeout_ms)
        return cls(deadline_ms=now_ms + delay_ms, end_ms=end_ms, delay_ms=delay_ms)

    @classmethod
    def regular(cls, *, now_ms: int, timeout_ms: int) -> "JoinPhase":
        return cls(deadline_ms=now_ms + timeout_ms, end_ms=now_ms + timeout_ms)

    @property
    def must_wait(self) -> bool:
        """Even when all known members have joined."""
        return self.delay_ms > 0

    def extend(self) -> bool:
        """At the deadline: is there time left to wait for more newcomers?"""
        if not (self.has_newcomers and self.deadline_ms < self.end_ms):
            return False
        self.has_newcomers = False
        self.deadline_ms = min(self.deadline_ms + self.delay_ms, self.end_ms)
        return True
