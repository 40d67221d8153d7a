"""A shop in one page: a database that is followed, a stream of clicks, and two live views.

    python examples/one_page.py

It prints

    paid: pot 30, tea 9
    visits: 12:00 2, 12:01 1
    -- the pot is cancelled, tea gets dearer, and a click of 12:00 comes late --
    paid: tea 12
    visits: 12:00 3, 12:01 1
"""

import sqlite3
from datetime import datetime
from typing import Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

app = ms.App("one_page")  # a broker and a Spark of its own; two settings point it at clusters
app.capture("sqlite:///shop.db", tables=["orders", "products"])  # or postgresql://, mariadb://
app.topic(
    "clicks",
    schema="user STRING, at TIMESTAMP",
    event_time="at",
    lateness="10 seconds",
    late="correct",  # or "drop", or "quarantine": a late event is never lost silently
)


@app.view(key="item")  # in SQLite; store= has PostgreSQL, Redis, Delta and others
def paid(orders, products):  # follows both tables: totals go down, too
    lines = ms.joins.tables(orders, products, on={"product": "id"}, key="id")
    priced = lines.withColumn("total", F.col("amount") * F.col("price"))
    return ms.changelog.aggregate(priced, by="item", of={"paid": ms.windows.sum("total")})


@app.view(key="window")
def visits(clicks):
    return clicks.groupBy(ms.windows.tumbling("1 minute")).count()


def click(clock: str) -> Any:
    """On disk when this returns: the receipt says where."""
    at = datetime.fromisoformat(f"2025-07-01T{clock}Z")
    return app.publish("clicks", {"user": "ada", "at": at})


def show(after: list[Any]) -> None:
    app.run(once=True)  # `millstream run` goes on until Ctrl-C
    print("paid:", ", ".join(f"{row['item']} {row['paid']}" for row in app.view("paid").scan()))
    minutes = app.view("visits").scan(after=after)  # with our own writes in it
    print("visits:", ", ".join(f"{row['window']['start']:%H:%M} {row['count']}" for row in minutes))


if __name__ == "__main__":
    shop = sqlite3.connect("shop.db", isolation_level=None)
    shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, item TEXT, price INTEGER)")
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, product INTEGER, amount INTEGER)")
    shop.execute("INSERT INTO products VALUES (1, 'tea', 3), (2, 'pot', 30)")
    shop.execute("INSERT INTO orders VALUES (10, 1, 3), (11, 2, 1)")
    with app:
        show(after=[click("12:00:10"), click("12:00:50"), click("12:01:30")])
        print("-- the pot is cancelled, tea gets dearer, and a click of 12:00 comes late --")
        shop.execute("DELETE FROM orders WHERE id = 11")
        shop.execute("UPDATE products SET price = 4 WHERE id = 1")
        show(after=[click("12:00:20")])
    shop.close()
