"""Lines for the audit of what was denied: the first at once, then one a minute with a count.

A client that is denied asks again, often many times a second: it must not fill the disk. Every
denial is counted, whether it has a line or not. Writes nothing itself.
"""

from dataclasses import dataclass

from millstream.broker.security.acls import Caller, Decision, Operation, Resource

LINE_INTERVAL_MS = 60_000
# Denials come from strangers too: who and what they name must not fill the memory.
WATCHED_MAX = 10_000
NAME_LENGTH_MAX = 300


@dataclass(slots=True)
class _Watched:
    line_ms: int
    unsaid: int = 0


class Denials:
    """What was denied to whom, per principal and resource. Owned by the broker's loop."""

    def __init__(self) -> None:
        self.count = 0
        self._watched: dict[tuple[str, Resource], _Watched] = {}  # the oldest line first

    def note(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        decision: Decision,
        *,
        api: str,
        now_ms: int,
    ) -> str | None:
        """Count it; the line to write, or None if one like it was written a moment ago."""
        self.count += 1
        key = (caller.principal, Resource(resource.type, resource.name[:NAME_LENGTH_MAX]))
        seen = self._watched.pop(key, None)
        if seen is not None and now_ms - seen.line_ms < LINE_INTERVAL_MS:
            seen.unsaid += 1
            self._watched[key] = seen
            return None
        self._watched[key] = _Watched(line_ms=now_ms)
        if len(self._watched) > WATCHED_MAX:
            del self._watched[next(iter(self._watched))]
        line = _line(caller, operation, resource, decision, api)
        return f"{line}; {seen.unsaid} more like it since" if seen and seen.unsaid else line


def _line(
    caller: Caller, operation: Operation, resource: Resource, decision: Decision, api: str
) -> str:
    """Names come from clients: `ascii` keeps line breaks and colours out of the audit."""
    return (
        f"denied: {_shown(caller.principal)} from {caller.host} {operation.name} on "
        f"{resource.type.name} {_shown(resource.name)} by {api}: {decision.reason.value}"
    )


def _shown(name: str) -> str:
    return ascii(name[:NAME_LENGTH_MAX])
