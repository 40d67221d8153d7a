"""How long somebody who guesses passwords must wait: longer after each wrong one.

Counted per address and user together, so that nobody can lock out a user from elsewhere, and per
address alone, more patiently, against trying one password for many users; a user who has logged in
from there before is spared that, so that one client with an old password does not keep out all
others of its machine. Every attempt takes a turn before its password is checked, so many
connections at once are not faster than one. Says how long to wait; the shell waits, then checks,
then says how it went.
"""

from dataclasses import dataclass

from millstream.base.errors import Retryable

PAIR_FAILURES_FREE = 2  # typing errors
ADDRESS_FAILURES_FREE = 20  # many clients behind one address
WAIT_MS_FIRST = 200
WAIT_MS_MAX = 30_000
# A turn further away than this is refused: no connection should wait for minutes.
TURN_MS_MAX = 2 * WAIT_MS_MAX
FORGET_MS = 15 * 60_000
SUSPECTS_MAX = 20_000
PROVEN_MAX = 20_000

Suspect = tuple[str, str | None]


class TooManyAttempts(Retryable):
    def __init__(self, *, address: str, retry_in_ms: int) -> None:
        super().__init__(
            f"too many failed logins from {address}; try again in {retry_in_ms // 1_000 + 1} s"
        )
        self.address, self.retry_in_ms = address, retry_in_ms


@dataclass(slots=True)
class _Record:
    failures: int = 0
    next_turn_ms: int = 0
    seen_ms: int = 0


class LoginAttempts:
    """Failed logins by address and user. Owned by the broker's loop."""

    def __init__(self) -> None:
        self._records: dict[Suspect, _Record] = {}  # the longest unseen first
        self._proven: dict[Suspect, None] = {}  # who has logged in from where; the same order

    def __len__(self) -> int:
        return len(self._records)

    def take_turn(self, address: str, user: str, *, now_ms: int) -> int:
        """How long to wait before this attempt is checked; call it once for each attempt."""
        records = [
            (record, _interval_ms(record.failures, free))
            for suspect, free in self._suspects_of_turn(address, user)
            if (record := self._fresh(suspect, now_ms)) is not None
        ]
        turn_ms = max([now_ms, *(record.next_turn_ms for record, _ in records)])
        if turn_ms - now_ms > TURN_MS_MAX:
            raise TooManyAttempts(address=address, retry_in_ms=turn_ms - now_ms)
        for record, interval_ms in records:
            record.next_turn_ms = turn_ms + interval_ms
        return turn_ms - now_ms

    def _suspects_of_turn(self, address: str, user: str) -> tuple[tuple[Suspect, int], ...]:
        suspects = _suspects(address, user)
        return suspects[:1] if (address, user) in self._proven else suspects

    def failed(self, address: str, user: str, *, now_ms: int) -> None:
        for suspect, free in _suspects(address, user):
            record = self._fresh(suspect, now_ms) or _Record()
            record.failures += 1
            record.seen_ms = now_ms
            wait_ms = _interval_ms(record.failures, free)
            record.next_turn_ms = max(record.next_turn_ms, now_ms + wait_ms)
            self._records.pop(suspect, None)
            self._records[suspect] = record
        while len(self._records) > SUSPECTS_MAX:
            del self._records[next(iter(self._records))]

    def succeeded(self, address: str, user: str) -> None:
        """Whoever knows the password is not guessing it. The address stays suspect."""
        self._records.pop((address, user), None)
        self._proven.pop((address, user), None)
        self._proven[address, user] = None
        if len(self._proven) > PROVEN_MAX:
            del self._proven[next(iter(self._proven))]

    def _fresh(self, suspect: Suspect, now_ms: int) -> _Record | None:
        record = self._records.get(suspect)
        if record is not None and now_ms - record.seen_ms >= FORGET_MS:
            del self._records[suspect]
            return None
        return record


def _suspects(address: str, user: str) -> tuple[tuple[Suspect, int], ...]:
    return ((address, user), PAIR_FAILURES_FREE), ((address, None), ADDRESS_FAILURES_FREE)


def _interval_ms(failures: int, free: int) -> int:
    """0 for the first `free` failures, then doubling."""
    if failures <= free:
        return 0
    doublings = min(failures - free - 1, 20)  # far beyond the maximum, and still a small number
    return min(WAIT_MS_FIRST << doublings, WAIT_MS_MAX)
