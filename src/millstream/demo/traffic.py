"""What happens in the shop next: the same actions for the same seed and the same clock. Pure.

Customers look around, search, see ads and click on them, order and pay; now and then one moves, or
a price changes. Not all of it goes well: some clicks come late, one device has a wrong clock,
payments are sent twice, or late, and some records are no payments at all. Does not know where
actions go (`generator.py` does).
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Paris", "Pune", "Turin", "Utrecht")
NAMES = ("Ada", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Leslie", "Niklaus")
PRODUCTS = ("lamp", "kettle", "chair", "bicycle", "teapot", "clock", "carpet", "radio")
CAMPAIGNS = ("spring", "sale", "new")
CUSTOMERS = 40
PRICE_CENTS_MAX = 20_000

# Of a thousand actions, and what is wrong with them.
WEIGHTS = {"click": 600, "search": 100, "ad": 200, "order": 80, "move": 8, "price": 12}
LATE_CLICKS = 0.03
WRONG_CLOCK = 0.01
AD_CLICKED = 0.3
PAID_TWICE = 0.10
PAID_LATE = 0.05
MALFORMED = 0.03
CLICK_LATE_SECONDS = (15, 120)
PAYMENT_LATE_SECONDS = (12, 40)
# The clock of one device: a battery went flat.
WRONG_CLOCK_AHEAD = timedelta(days=5 * 365)
WRONG_CLOCK_DEVICE = "kiosk-7"


@dataclass(frozen=True, slots=True)
class Send:
    """A record for a topic. `flaw`: what is wrong with it, if anything."""

    topic: str
    key: str
    value: bytes
    flaw: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """An order and its payment, which is sent `copies` times, `delay_s` after it was made."""

    customer_id: int
    product_id: int
    quantity: int
    at: datetime
    copies: int
    delay_s: int


@dataclass(frozen=True, slots=True)
class Move:
    customer_id: int
    city: str
    at: datetime


@dataclass(frozen=True, slots=True)
class PriceChange:
    product_id: int
    cents: int
    at: datetime


Action = Send | Order | Move | PriceChange


def customer_name(customer_id: int) -> str:
    return f"{NAMES[customer_id % len(NAMES)]} {customer_id}"


def payment_record(payment_id: int, order_id: int, cents: int, at: datetime) -> Send:
    row = {"payment_id": payment_id, "order_id": order_id, "cents": cents, "at": time_text(at)}
    return Send("payments", str(payment_id), encoded(row))


def encoded(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


def time_text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


class Traffic:
    """Every call of `actions` goes on where the last one ended."""

    def __init__(self, seed: int, *, first_impression: int = 0) -> None:
        self._dice = random.Random(seed)
        self._impression = first_impression

    def actions(self, count: int, now: datetime) -> Iterator[Action]:
        """`count` things that happen now, one after the other; each has a time of its own."""
        for number in range(count):
            at = now + timedelta(microseconds=number)
            kind = self._one_of(list(WEIGHTS), list(WEIGHTS.values()))
            yield from getattr(self, f"_{kind}")(at)

    def _one_of(self, kinds: Sequence[str], weights: Sequence[int]) -> str:
        return self._dice.choices(kinds, weights)[0]

    def _happens(self, share: float) -> bool:
        return self._dice.random() < share

    def _customer(self) -> int:
        return self._dice.randrange(CUSTOMERS)

    def _click(self, at: datetime, search: str | None = None) -> Iterator[Action]:
        customer, device, flaw = self._customer(), "browser", ""
        if self._happens(WRONG_CLOCK):
            device, at, flaw = WRONG_CLOCK_DEVICE, at + WRONG_CLOCK_AHEAD, "wrong clock"
        elif self._happens(LATE_CLICKS):
            at, flaw = at - timedelta(seconds=self._dice.randint(*CLICK_LATE_SECONDS)), "late"
        page = "/search" if search else f"/{self._dice.choice(PRODUCTS)}"
        row = {"customer_id": customer, "device": device, "page": page, "search": search}
        yield Send("clicks", str(customer), encoded(row | {"at": time_text(at)}), flaw)

    def _search(self, at: datetime) -> Iterator[Action]:
        yield from self._click(at, search=self._dice.choice(PRODUCTS))

    def _ad(self, at: datetime) -> Iterator[Action]:
        self._impression += 1
        row: dict[str, Any] = {"impression_id": self._impression}
        row["campaign"] = self._dice.choice(CAMPAIGNS)
        yield Send("ads_shown", str(self._impression), encoded(row | {"at": time_text(at)}))
        if self._happens(AD_CLICKED):
            soon = at + timedelta(milliseconds=self._dice.randint(1, 900))
            clicked = encoded(row | {"at": time_text(soon)})
            yield Send("ads_clicked", str(self._impression), clicked)

    def _order(self, at: datetime) -> Iterator[Action]:
        is_late = self._happens(PAID_LATE)
        yield Order(
            customer_id=self._customer(),
            product_id=self._dice.randrange(len(PRODUCTS)),
            quantity=self._dice.randint(1, 4),
            at=at,
            copies=2 if self._happens(PAID_TWICE) else 1,
            delay_s=self._dice.randint(*PAYMENT_LATE_SECONDS) if is_late else 0,
        )
        if self._happens(MALFORMED):
            yield Send("payments", "?", b'{"payment_id": "seven", "cents":', "malformed")

    def _move(self, at: datetime) -> Iterator[Action]:
        yield Move(self._customer(), self._dice.choice(CITIES), at)

    def _price(self, at: datetime) -> Iterator[Action]:
        product = self._dice.randrange(len(PRODUCTS))
        yield PriceChange(product, self._dice.randint(100, PRICE_CENTS_MAX), at)
