"""How long somebody who guesses passwords must wait: longer after each wrong one.

Two things are counted, failures of one user from one address, and failures from the address:

    a pair     2 failures are free, then a turn after 0.2 s, 0.4, 0.8 ... 30 s. Turns are taken, and
               each that is taken counts as a failure until it is known better: a thousand guesses
               at once are checked as slowly as one after the other: 10 in the first 26 s, then
               2 a minute. A turn over 10 s away is refused at once and moves nothing.
    address    20 failures are free, then each attempt waits 0.2 s, 0.4, 0.8, 1 s, not for turns.
               So whoever else guesses there, a right password gets in after a second at most, and
               at once if it has been right there before. One that tries a thousand users is
               slowed by the pairs: 2 guesses a minute and user.

All of a network of IPv6 (64 bits) is one address: a single host may have any of them.

Nobody can lock out a user who is elsewhere. Says how long to wait; the shell waits, then checks,
then says how it went, or that the client did not stay.
"""

from dataclasses import dataclass

from millstream.base.client_address import address_key
from millstream.base.errors import Retryable

PAIR_FAILURES_FREE = 2  # typing errors
ADDRESS_FAILURES_FREE = 20  # many clients behind one address
WAIT_MS_FIRST = 200
WAIT_MS_MAX = 30_000
ADDRESS_WAIT_MS_MAX = 1_000
# Clients give up after 15 to 30 s. They should hear why, and when to come again.
TURN_MS_MAX = 10_000
FORGET_MS = 15 * 60_000
SUSPECTS_MAX = 20_000
PROVEN_MAX = 20_000

Pair = tuple[str, str]
Suspect = tuple[str, str | None]


class TooManyAttempts(Retryable):
    def __init__(self, *, address: str, retry_in_ms: int) -> None:
        super().__init__(
            f"too many failed logins of this user from {address}; "
            f"try again in {retry_in_ms // 1_000 + 1} s"
        )
        self.address, self.retry_in_ms = address, retry_in_ms


@dataclass(slots=True)
class _Record:
    failures: int = 0
    waiting: int = 0  # have taken a turn, and are not checked yet
    next_turn_ms: int = 0
    seen_ms: int = 0


class LoginAttempts:
    """Failed logins by address and user. Owned by the broker's loop."""

    def __init__(self) -> None:
        self._records: dict[Suspect, _Record] = {}  # the longest unseen first
        self._proven: dict[Pair, None] = {}  # who has logged in from where; the same order

    def __len__(self) -> int:
        return len(self._records)

    def take_turn(self, address: str, user: str, *, now_ms: int) -> int:
        """How long to wait before this attempt is checked; call it once for each attempt."""
        pair_wait_ms = self._take_turn_of_pair(address, user, now_ms)
        return max(pair_wait_ms, self._address_wait_ms(address_key(address), user, now_ms))

    def _take_turn_of_pair(self, address: str, user: str, now_ms: int) -> int:
        record = self._fresh((address_key(address), user), now_ms)
        if record is None:
            return 0
        turn_ms = max(now_ms, record.next_turn_ms)
        if turn_ms - now_ms > TURN_MS_MAX:
            raise TooManyAttempts(address=address, retry_in_ms=turn_ms - now_ms)
        record.waiting += 1
        record.next_turn_ms = turn_ms + _pair_interval_ms(record)
        return turn_ms - now_ms

    def _address_wait_ms(self, address: str, user: str, now_ms: int) -> int:
        record = self._fresh((address, None), now_ms)
        if record is None or (address, user) in self._proven:
            return 0
        return min(_interval_ms(record.failures - ADDRESS_FAILURES_FREE), ADDRESS_WAIT_MS_MAX)

    def gave_up(self, address: str, user: str) -> None:
        """Its client has gone before it was checked, and has learnt nothing."""
        record = self._records.get((address_key(address), user))
        if record is None:
            return
        record.waiting = max(record.waiting - 1, 0)
        if not record.waiting:
            record.next_turn_ms = record.seen_ms + _pair_interval_ms(record)

    def failed(self, address: str, user: str, *, now_ms: int) -> None:
        whose = address_key(address)
        self._note_failure((whose, None), now_ms)
        record = self._note_failure((whose, user), now_ms)
        record.waiting = max(record.waiting - 1, 0)
        record.next_turn_ms = max(record.next_turn_ms, now_ms + _pair_interval_ms(record))
        while len(self._records) > SUSPECTS_MAX:
            del self._records[next(iter(self._records))]

    def _note_failure(self, suspect: Suspect, now_ms: int) -> _Record:
        record = self._fresh(suspect, now_ms) or _Record()
        record.failures += 1
        record.seen_ms = now_ms
        self._records.pop(suspect, None)
        self._records[suspect] = record
        return record

    def succeeded(self, address: str, user: str) -> None:
        """Whoever knows the password is not guessing it. The address stays suspect."""
        pair = (address_key(address), user)
        self._records.pop(pair, None)
        self._proven.pop(pair, None)
        self._proven[pair] = None
        if len(self._proven) > PROVEN_MAX:
            del self._proven[next(iter(self._proven))]

    def _fresh(self, suspect: Suspect, now_ms: int) -> _Record | None:
        record = self._records.get(suspect)
        if record is not None and now_ms - record.seen_ms >= FORGET_MS:
            del self._records[suspect]
            return None
        return record


def _pair_interval_ms(record: _Record) -> int:
    """Those that wait count as if they had failed."""
    return _interval_ms(record.failures + record.waiting - PAIR_FAILURES_FREE)


def _interval_ms(failures: int) -> int:
    """0 without a failure, then doubling."""
    if failures <= 0:
        return 0
    doublings = min(failures - 1, 20)  # far beyond the maximum, and still a small number
    return min(WAIT_MS_FIRST << doublings, WAIT_MS_MAX)
