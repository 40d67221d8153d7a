"""How many connections there may be, in all and from one address; the next one is turned away.

Counted from the moment that a client is there, so that a TLS handshake that never ends counts too.
"""

from collections import Counter

from millstream.base.errors import Retryable


class NoRoom(Retryable):
    def __init__(self, *, address: str, setting: str) -> None:
        super().__init__(f"too many connections ({setting})")
        self.address, self.setting = address, setting


class Place:
    """One connection's; `leave` gives it back, once."""

    __slots__ = ("_address", "_admission")

    def __init__(self, admission: "Admission", address: str) -> None:
        self._admission: Admission | None = admission
        self._address = address

    def leave(self) -> None:
        if self._admission is not None:
            self._admission.give_back(self._address)
            self._admission = None


class Admission:
    """Owned by the broker's loop."""

    def __init__(self, *, connections_max: int, per_address_max: int) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._of_address: Counter[str] = Counter()
        self.refused = 0

    def enter(self, address: str) -> Place:
        """A place, or NoRoom."""
        if self._of_address.total() >= self._connections_max:
            self.refused += 1
            raise NoRoom(address=address, setting="connections_max")
        if self._of_address[address] >= self._per_address_max:
            self.refused += 1
            raise NoRoom(address=address, setting="connections_per_address_max")
        self._of_address[address] += 1
        return Place(self, address)

    def give_back(self, address: str) -> None:
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
