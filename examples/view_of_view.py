"""A view of a view: from orders to customers, from customers to how many spend how much.

    python examples/view_of_view.py

The second job reads every change of the first one's rows, each once. It prints

    {'level': 'gold', 'customers': 1}
    {'level': 'plain', 'customers': 2}
    -- bob buys for 60 more --
    {'level': 'gold', 'customers': 2}
    {'level': 'plain', 'customers': 1}
"""

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

app = ms.App("view_of_view")
app.topic("orders", schema="customer STRING, amount INT")


@app.view(key="customer")
def levels(orders):
    total = orders.groupBy("customer").agg(F.sum("amount").alias("total"))
    return total.withColumn("level", F.expr("IF(total >= 100, 'gold', 'plain')"))


@app.view(key="level")
def customers_by_level(levels):  # the parameter names the view
    return ms.changelog.aggregate(levels, by="level", of={"customers": ms.windows.count()})


def show() -> None:
    app.run(once=True, only=["levels"])
    app.run(once=True, only=["customers_by_level"])
    for row in app.view("customers_by_level").scan():
        print(row)


if __name__ == "__main__":
    with app:
        spent = {"ada": 120, "bob": 50, "cy": 10}
        app.publish("orders", [{"customer": one, "amount": spent[one]} for one in spent])
        show()
        print("-- bob buys for 60 more --")
        app.publish("orders", {"customer": "bob", "amount": 60})
        show()
