"""Until when each member of a consumer group must have done what is expected of it."""

from enum import Enum, auto


class Duty(Enum):
    HEARTBEAT = auto()
    REVOKE = auto()
    # Of members that speak the classic protocol:
    JOIN = auto()
    SYNC = auto()


class Deadlines:
    """At most one per member and duty. Who misses one is out."""

    def __init__(self) -> None:
        self._due_ms: dict[tuple[str, Duty], int] = {}

    def put(self, member_id: str, duty: Duty, due_ms: int) -> None:
        self._due_ms[member_id, duty] = due_ms

    def put_if_absent(self, member_id: str, duty: Duty, due_ms: int) -> None:
        self._due_ms.setdefault((member_id, duty), due_ms)

    def clear(self, member_id: str, duty: Duty) -> None:
        self._due_ms.pop((member_id, duty), None)

    def forget(self, member_id: str) -> None:
        for duty in Duty:
            self.clear(member_id, duty)

    @property
    def first_ms(self) -> int | None:
        return min(self._due_ms.values(), default=None)

    def missed_by(self, now_ms: int) -> set[str]:
        """The members that are late."""
        return {member_id for (member_id, _), ms in self._due_ms.items() if ms <= now_ms}
