"""The application of `millstream demo`: what comes in, and what is made of it.

    SHOP_DATABASE='postgresql://mill:${SHOP_PASSWORD}@localhost/shop' millstream up shop.py

Each view is a function of DataFrames whose parameters name topics and tables. Money is in cents.
"""

# Without types, as an application's author may write it: frames in, a frame out.
# mypy: allow-untyped-defs, allow-incomplete-defs

import os

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

app = ms.App("shop", data=os.environ.get("SHOP_DATA"))

# --- what comes in: events, and a database that is followed --------------------------------------

# Late clicks still count, for a day. A device whose clock is years ahead is no witness of time:
# its clicks are dead letters.
app.topic(
    "clicks",
    schema="customer_id BIGINT, device STRING, page STRING, search STRING, at TIMESTAMP",
    key="customer_id",
    event_time="at",
    lateness="10 seconds",
    late="correct",
    keep="1 day",
    ahead="5 minutes",
    partitions=2,
)

# Sent again when the answer was lost, so the same payment can come twice, and late.
app.topic(
    "payments",
    schema="payment_id BIGINT, order_id BIGINT, cents BIGINT, at TIMESTAMP",
    key="payment_id",
    event_time="at",
    lateness="10 seconds",
    late="correct",
    keep="1 day",
    partitions=1,
)

for name in ("ads_shown", "ads_clicked"):
    app.topic(
        name,
        schema="impression_id BIGINT, campaign STRING, at TIMESTAMP",
        key="impression_id",
        event_time="at",
        lateness="10 seconds",
        partitions=1,
    )

# What the shop tells of an order, in the transaction that writes it: through its outbox.
app.topic(
    "orders_placed",
    schema="order_id BIGINT, customer_id BIGINT, product_id BIGINT, quantity BIGINT, at TIMESTAMP",
    key="customer_id",
    event_time="at",
    late="correct",
    keep="1 day",
    partitions=1,
)

app.capture(
    os.environ.get("SHOP_DATABASE", "postgresql://mill:${SHOP_PASSWORD}@127.0.0.1/shop"),
    name="shop",
    tables=["customers", "orders", "prices", "outbox"],
    outbox="outbox",
    partitions=1,
)

# --- the stock: every unit that came or went is an event ------------------------------------------

LOW = 10


@ms.event
class Received:
    units: int


@ms.event
class Shipped:
    order_id: int
    units: int


@ms.event
class RanLow:
    on_hand: int


class Stock(ms.Aggregate):
    """Of one product. What is shipped and not there is owed: below zero."""

    on_hand = 0
    is_low = False

    def receive(self, units: int):
        if units < 1:
            raise ms.Rejected(f"{units} units of {self.id} cannot be received")
        yield Received(units)

    def ship(self, order_id: int, units: int):
        yield Shipped(order_id, units)
        if self.on_hand < LOW and not self.is_low:
            yield RanLow(self.on_hand)

    def on_Received(self, event):  # noqa: N802  # named after its event
        self.on_hand += event.units
        self.is_low = self.is_low and self.on_hand < LOW

    def on_Shipped(self, event):  # noqa: N802
        self.on_hand -= event.units

    def on_RanLow(self, _event):  # noqa: N802
        self.is_low = True


# Commands come from other processes, by way of a topic, and are decided where the app runs.
stock = app.aggregates(Stock, partitions=1, commands="topic")

# --- what is made of it ---------------------------------------------------------------------------


@app.view(key="window", every="3 seconds")
def revenue_a_minute(payments):
    """A payment counts once, however often it comes, in the minute that it was made."""
    once = payments.dropDuplicates(["payment_id"])
    return ms.windows.aggregate(
        once,
        ms.windows.tumbling("1 minute"),
        of={"payments": ms.windows.count(), "cents": ms.windows.sum("cents")},
    )


@app.view(key=["customer_id", "session_start"], every="4 seconds")
def visits(clicks):
    """A visit lasts until nothing was clicked for half a minute; a late click can join two."""
    return ms.windows.aggregate(
        clicks,
        ms.windows.session("30 seconds"),
        by="customer_id",
        of={
            "clicks": ms.windows.count(),
            "searches": ms.windows.count("search"),
            "looked_for": ms.windows.collect("search"),
        },
    )


@app.view(key="impression_id", every="4 seconds")
def ads_that_worked(ads_shown, ads_clicked):
    """An ad, and the click on it within a minute."""
    clicked = ads_clicked.select("impression_id", "at")
    return ms.joins.within(ads_shown, clicked, on="impression_id", within=("0 seconds", "1 minute"))


@app.view(key="order_id", every="4 seconds")
def orders_with_customer(orders_placed, customers):
    """Who ordered, and where they lived then: they may have moved since."""
    return ms.joins.as_of(
        orders_placed,
        customers,
        on="customer_id",
        at="at",
        versions="since",
        late_versions="correct",
        keep="1 day",
    )


@app.view(key="order_id", every="4 seconds")
def orders_with_price(orders_placed, prices):
    """What an order came to, at the price of its moment."""
    priced = ms.joins.as_of(
        orders_placed,
        prices,
        on="product_id",
        at="at",
        versions="since",
        late_versions="correct",
        keep="1 day",
    )
    return priced.withColumn("cents", priced.quantity * priced.price)


@app.view(key="customer_id", every="4 seconds")
def customer_360(customers, orders):
    """All that is known of a customer: a table joined with the totals of another."""
    totals = ms.changelog.aggregate(
        orders,
        by="customer_id",
        of={
            "orders": ms.windows.count(),
            "spent": ms.windows.sum("cents"),
            "last_order": ms.windows.max("placed_at"),
        },
    )
    return ms.joins.tables(customers, totals, on="customer_id", how="left", key="customer_id")


@app.view(key="stream", every="4 seconds")
def stock_on_hand(events):
    """The same as the aggregate knows, for all products at once: events, summed up."""
    units = F.col("data.units")
    came = F.when(F.col("type") == "Received", units)
    went = F.when(F.col("type") == "Shipped", units)
    on_hand = F.sum(F.coalesce(came, -went, F.lit(0)))
    return events.groupBy("stream").agg(on_hand.alias("on_hand"), F.count(went).alias("shipped"))


if __name__ == "__main__":
    app.run()
