"""A seat is booked and paid for: two aggregates, and no transaction over both.

    python examples/seat_booking.py

The seat is held first, then the wallet is charged, then the seat is confirmed; or given back when
the wallet refuses. Reactions carry it from one to the other. Without MILLSTREAM_BROKERS it starts
a broker of its own, with its data in ./booking.millstream.
"""

from collections.abc import Iterator
from uuid import uuid4

import millstream as ms

PATIENCE_SECONDS = 60.0


@ms.event
class SeatHeld:
    """Tentative: nobody else gets it, and it is not paid for yet."""

    booking: str
    customer: str
    price: int


@ms.event
class SeatBooked:
    booking: str


@ms.event
class SeatReleased:
    booking: str
    reason: str


@ms.event
class HoldLost:
    """The money came when the seat was no longer held for it."""

    booking: str
    customer: str


class Seat(ms.Aggregate):
    booking = ""
    customer = ""
    price = 0
    is_paid = False

    def hold(self, booking: str, customer: str, price: int) -> Iterator[object]:
        if self.booking:
            raise ms.Rejected(f"it is {'booked' if self.is_paid else 'held'} for {self.customer}")
        yield SeatHeld(booking, customer, price)

    def confirm(self, booking: str, customer: str) -> Iterator[object]:
        if self.booking != booking:
            yield HoldLost(booking, customer)
        elif not self.is_paid:
            yield SeatBooked(booking)

    def release(self, booking: str, reason: str) -> Iterator[object]:
        if self.booking == booking and not self.is_paid:
            yield SeatReleased(booking, reason)

    def on_SeatHeld(self, event: SeatHeld) -> None:  # noqa: N802 - the name of the event
        self.booking, self.customer, self.price = event.booking, event.customer, event.price

    def on_SeatBooked(self, _: SeatBooked) -> None:  # noqa: N802 - the same
        self.is_paid = True

    def on_SeatReleased(self, _: SeatReleased) -> None:  # noqa: N802 - the same
        self.booking, self.customer, self.price = "", "", 0

    def on_HoldLost(self, _: HoldLost) -> None:  # noqa: N802 - the same
        pass


@ms.event
class ToppedUp:
    amount: int


@ms.event
class Charged:
    booking: str
    seat: str
    amount: int


@ms.event
class ChargeRefused:
    """A fact like any other: somebody must hear of it, so it is no error."""

    booking: str
    seat: str
    reason: str


@ms.event
class Refunded:
    booking: str
    amount: int


class Wallet(ms.Aggregate, events=[ChargeRefused]):
    balance = 0
    charges: dict[str, int] = {}  # noqa: RUF012 - each wallet has a copy

    def top_up(self, amount: int) -> Iterator[object]:
        yield ToppedUp(amount)

    def charge(self, booking: str, seat: str, amount: int) -> Iterator[object]:
        if amount > self.balance:
            yield ChargeRefused(booking, seat, f"{self.balance} of {amount}")
        else:
            yield Charged(booking, seat, amount)

    def refund(self, booking: str) -> Iterator[object]:
        if booking in self.charges:
            yield Refunded(booking, self.charges[booking])

    def on_ToppedUp(self, event: ToppedUp) -> None:  # noqa: N802 - the name of the event
        self.balance += event.amount

    def on_Charged(self, event: Charged) -> None:  # noqa: N802 - the same
        self.balance -= event.amount
        self.charges[event.booking] = event.amount

    def on_Refunded(self, event: Refunded) -> None:  # noqa: N802 - the same
        self.balance += event.amount
        del self.charges[event.booking]


def declare(app: ms.App) -> None:
    """What leads to what."""
    seats, wallets = app.aggregates(Seat), app.aggregates(Wallet)

    @app.reaction(SeatHeld)
    def charge(event: SeatHeld, cause: ms.Cause) -> Iterator[object]:
        wallet = wallets.asking[event.customer]
        yield wallet.charge(event.booking, seat=cause.aggregate_id, amount=event.price)

    @app.reaction(Charged)
    def confirm(event: Charged, cause: ms.Cause) -> Iterator[object]:
        yield seats.asking[event.seat].confirm(event.booking, customer=cause.aggregate_id)

    @app.reaction(ChargeRefused)
    def give_back(event: ChargeRefused) -> Iterator[object]:
        yield seats.asking[event.seat].release(event.booking, reason=event.reason)

    @app.reaction(HoldLost)
    def refund(event: HoldLost) -> Iterator[object]:
        yield wallets.asking[event.customer].refund(event.booking)


def main(app: ms.App) -> str:
    declare(app)
    seat, wallets = app.aggregates(Seat)["7a"], app.aggregates(Wallet)
    wallets["ada"].top_up(100)
    wallets["bob"].top_up(20)
    with app.hosting():
        seat.hold("b-1", "bob", price=30)
        ended = outcome(app, "b-1")
        print(f"bob holds seat 7a, and his wallet is asked: {ended.type}")
        asked = [seat.hold(f"a-{number}", "ada", price=30, wait=False) for number in range(50)]
        held = [one.id for one in asked if is_held(one)]
        print(f"{len(held)} of 50 attempts holds it")
        ended = outcome(app, seat.state().booking)
        print(f"ada pays: {ended.type}, and has {wallets['ada'].state().balance} left")
    for one in seat.history():
        print(f"{one.version:3} {one.event} {one.by or ''}")
    return seat.state().customer


def is_held(pending: ms.Pending) -> bool:
    try:
        pending.result(PATIENCE_SECONDS)
    except ms.Rejected:
        return False
    return True


def outcome(app: ms.App, booking: str) -> ms.StoredEvent:
    """How a booking ended: it is followed until then."""
    ends = ms.Query(types=["SeatBooked", "SeatReleased", "HoldLost"])
    with app.event_store().subscribe(where=ends, timeout=PATIENCE_SECONDS) as events:
        return next(one for one in events if f'"{booking}"'.encode() in bytes(one.data))


if __name__ == "__main__":
    with ms.App(f"booking-{uuid4().hex[:8]}", data="booking.millstream") as booking:
        main(booking)
