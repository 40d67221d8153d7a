"""A view in PostgreSQL: a table that other programs ask in SQL, whole batches at a time.

    export SHOP_DATABASE=postgresql://mill:stream@localhost/shop
    python examples/store_postgres.py

Rows, receipt and positions of a batch are one transaction. Any client sees it as a table of the
view's name. It prints

    [('ada', 50), ('bob', 10)]
    [('ada', 50), ('bob', 17)]
"""

import os

import psycopg
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

DATABASE = os.environ["SHOP_DATABASE"]

app = ms.App("store_postgres")
app.topic("orders", schema="customer STRING, amount INT")


@app.view(key="customer", store=ms.stores.Postgres(DATABASE))
def spent(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("total"))


def order(customer: str, amount: int) -> None:
    app.publish("orders", {"customer": customer, "amount": amount})


def show() -> None:
    app.run(once=True)
    with psycopg.connect(DATABASE) as connection:
        print(connection.execute("SELECT customer, total FROM spent ORDER BY customer").fetchall())


if __name__ == "__main__":
    with app:
        order("ada", 20)
        order("bob", 10)
        order("ada", 30)
        show()
        order("bob", 7)
        show()
