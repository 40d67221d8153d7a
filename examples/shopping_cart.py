"""A shopping cart as a history of events: what a table of carts would have lost.

    python examples/shopping_cart.py

A table has what is in a cart now. The events know what was taken out again, how often a price was
looked at, and what the cart was worth before the voucher. Without MILLSTREAM_BROKERS it starts a
broker of its own, with its data in ./shop.millstream.
"""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import millstream as ms
from millstream.eventsourcing.handles import Handle


@ms.event
class Added:
    sku: str
    price: int


@ms.event
class Removed:
    sku: str


@ms.event
class Ordered:
    total: int


class Cart(ms.Aggregate):
    items: dict[str, int] = {}  # noqa: RUF012 - the initial state, copied for each cart
    is_ordered = False

    def add(self, sku: str, price: int) -> Iterator[object]:
        self._must_be_open()
        yield Added(sku, price)

    def remove(self, sku: str) -> Iterator[object]:
        self._must_be_open()
        if sku in self.items:  # else there is nothing to do, which is no error
            yield Removed(sku)

    def order(self) -> Iterator[object]:
        self._must_be_open()
        if not self.items:
            raise ms.Rejected("the cart is empty")
        yield Ordered(sum(self.items.values()))

    def _must_be_open(self) -> None:
        if self.is_ordered:
            raise ms.Rejected("it is ordered already")

    def on_Added(self, event: Added) -> None:  # noqa: N802 - the name of the event
        self.items[event.sku] = event.price

    def on_Removed(self, event: Removed) -> None:  # noqa: N802 - the same
        del self.items[event.sku]

    def on_Ordered(self, event: Ordered) -> None:  # noqa: N802 - the same
        self.is_ordered = True


def shop(cart: Handle[Cart]) -> None:
    """What a customer does: the pot is too dear, twice."""
    cart.add("tea", 4)
    cart.add("pot", 60)
    cart.remove("pot")
    cart.add("pot", 55)
    cart.remove("pot")
    cart.order()


def nearly_bought(app: ms.App) -> Counter[str]:
    """What was taken out of carts, of all of them: the question came after the carts."""
    carts = app.aggregates(Cart)
    removed = (one.event for id in carts for one in carts[id].history() if one.type == "Removed")
    return Counter(event.sku for event in removed)


def main(app: ms.App, carts: int = 3) -> Counter[str]:
    all_carts = app.aggregates(Cart)
    for _ in range(carts):
        shop(all_carts[uuid4().hex])
    found = nearly_bought(app)
    first = next(iter(all_carts))
    print(f"in the table: {all_carts[first].state().items}")
    print("in the log:  ", ", ".join(str(one.event) for one in all_carts[first].history()))
    print(f"nearly bought: {dict(found)}")
    return found


if __name__ == "__main__":
    with ms.App("shop") as app:
        main(app)
