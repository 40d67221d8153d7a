"""How many connections there may be, in all and from one address; the next one is turned away.

Counted from the moment that a client is there, so that a TLS handshake that never ends counts too.
A network of IPv6 (64 bits) counts as one address, since one host has all of it.
Where logins are required, those who have not logged in yet are strangers: they hold half of the
places at most, and those of one address a quarter, so that others can still come in and log in.
"""

from collections import Counter

from millstream.base.client_address import address_key
from millstream.base.errors import Retryable


class NoRoom(Retryable):
    def __init__(self, *, address: str, setting: str, whose: str = "") -> None:
        super().__init__(f"too many connections{whose} ({setting})")
        self.address, self.setting = address, setting


class Place:
    """One connection's; `settle` when it has logged in, `leave` gives it back, once."""

    __slots__ = ("_address", "_admission", "_is_stranger")

    def __init__(self, admission: "Admission", address: str) -> None:
        self._admission: Admission | None = admission
        self._address = address
        self._is_stranger = True

    def settle(self) -> None:
        if self._is_stranger and self._admission is not None:
            self._is_stranger = False
            self._admission.settle(self._address)

    def leave(self) -> None:
        if self._admission is not None:
            self.settle()
            self._admission.give_back(self._address)
            self._admission = None


class Admission:
    """Owned by the broker's loop."""

    def __init__(
        self, *, connections_max: int, per_address_max: int, must_log_in: bool = False
    ) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._must_log_in = must_log_in
        self._of_address: Counter[str] = Counter()
        self._strangers: Counter[str] = Counter()
        self.refused = 0

    def enter(self, host: str) -> Place:
        """A place, or NoRoom."""
        address = address_key(host)
        try:
            self._check_room(address)
            if self._must_log_in:
                self._check_room_for_stranger(address)
        except NoRoom:
            self.refused += 1
            raise
        self._of_address[address] += 1
        self._strangers[address] += 1
        return Place(self, address)

    def _check_room(self, address: str) -> None:
        if self._of_address.total() >= self._connections_max:
            raise NoRoom(address=address, setting="connections_max")
        if self._of_address[address] >= self._per_address_max:
            raise NoRoom(address=address, setting="connections_per_address_max")

    def _check_room_for_stranger(self, address: str) -> None:
        whose = " without a login"
        if self._strangers.total() >= max(self._connections_max // 2, 1):
            raise NoRoom(address=address, setting="half of connections_max", whose=whose)
        if self._strangers[address] >= max(self._connections_max // 4, 1):
            raise NoRoom(address=address, setting="a quarter of connections_max", whose=whose)

    def settle(self, address: str) -> None:
        _take_one(self._strangers, address)

    def give_back(self, address: str) -> None:
        _take_one(self._of_address, address)


def _take_one(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]
