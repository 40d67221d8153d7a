"""Who is connected, how many at most, and who makes room when there is none. Pure.

A connection *waits* until its request is admitted, and again after its answer: meanwhile it may go.
One that is being answered stays. So what sends nothing, or sends slowly, takes no place from who
asks; there are always fewer admitted requests (`requests_max`) than places.

    enter ──> waits ──start()──> is answered ──rest()──> waits ──leave()──>
                └── goes when its address, or all together, have no place left
"""

from collections.abc import Callable

from millstream.base.client_address import address_key

# Where the protocol leaves it for the guard: in the `state` of a request's scope.
PLACE = "millstream_place"


class Place:
    """Of one connection in the book. `end` closes it at once; who holds the connection sets it."""

    def __init__(self, book: "Connections", address: str) -> None:
        self._book, self.address = book, address
        self.end: Callable[[], object] = _nothing

    def start(self) -> None:
        """Its request is admitted."""
        self._book.start(self)

    def rest(self) -> None:
        """Its request is answered."""
        self._book.rest(self)

    def leave(self) -> None:
        self._book.leave(self)


def _nothing() -> None:
    pass


class Connections:
    """Of one server. An address may have `of_address_max` of the places."""

    def __init__(self, total_max: int, of_address_max: int) -> None:
        self._total_max, self._of_address_max = total_max, of_address_max
        # In the order in which they began to wait; the values mean nothing.
        self._waiting: dict[Place, None] = {}
        self._waiting_of: dict[str, dict[Place, None]] = {}
        self._number_of: dict[str, int] = {}
        self._places: set[Place] = set()

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, host: str) -> Place | None:
        """A place, for which another connection may have to go; None if none of them may."""
        address = address_key(host)
        has_room = self._has_room(address)
        if not has_room:
            return None
        place = Place(self, address)
        self._places.add(place)
        self._number_of[address] = self._number_of.get(address, 0) + 1
        self.rest(place)
        return place

    def _has_room(self, address: str) -> bool:
        if self._number_of.get(address, 0) >= self._of_address_max:
            return self._end_oldest(self._waiting_of.get(address, {}))
        return len(self._places) < self._total_max or self.end_oldest()

    def end_oldest(self) -> bool:
        """End the connection that has waited longest; false if none waits."""
        return self._end_oldest(self._waiting)

    def _end_oldest(self, waiting: dict[Place, None]) -> bool:
        oldest = next(iter(waiting), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.end()
        return True

    def start(self, place: Place) -> None:
        self._waiting.pop(place, None)
        of_address = self._waiting_of.get(place.address, {})
        of_address.pop(place, None)
        if not of_address:
            self._waiting_of.pop(place.address, None)

    def rest(self, place: Place) -> None:
        if place in self._places:
            self.start(place)
            self._waiting[place] = None
            self._waiting_of.setdefault(place.address, {})[place] = None

    def leave(self, place: Place) -> None:
        """Once or more often."""
        if place not in self._places:
            return
        self.start(place)
        self._places.discard(place)
        self._number_of[place.address] -= 1
        if not self._number_of[place.address]:
            del self._number_of[place.address]
