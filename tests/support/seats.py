"""A seat that only one can have, as an aggregate: who races for it, in tests."""

from decimal import Decimal

from millstream.base.errors import Rejected, Retryable
from millstream.eventsourcing.aggregate import Aggregate
from millstream.eventsourcing.declared_event import event


@event
class Taken:
    by: str


@event
class Priced:
    price: Decimal


class Seat(Aggregate, events=[Priced]):
    owner = ""

    def take(self, who: str):  # type: ignore[no-untyped-def]
        if self.owner:
            raise Rejected(f"taken by {self.owner}")
        yield Taken(who)

    def price_at(self, price: Decimal, *others: Decimal):  # type: ignore[no-untyped-def]
        yield Priced(sum(others, price))

    def break_down(self):  # type: ignore[no-untyped-def]
        yield Taken("nobody")
        raise ZeroDivisionError("a bug")

    def pay(self):  # type: ignore[no-untyped-def]
        yield Taken("nobody")
        raise Retryable("the card service is away")

    def on_Taken(self, event: Taken) -> None:  # noqa: N802 - the name of the event
        self.owner = event.by
