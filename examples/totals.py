"""Totals of a table: they go down when a row is cancelled, and move when a row does.

    python examples/totals.py

Spark's own groupBy would count changes; `changelog.aggregate` counts rows. It prints

    ada   2 orders  50, the least 20
    bob   1 orders  10, the least 10
    -- ada cancels the 20, bob's order becomes ada's --
    ada   2 orders  40, the least 10
"""

import millstream as ms

app = ms.App("totals")
app.table("orders", schema="id INT, customer STRING, amount INT", key="id")


@app.view(key="customer")
def spent(orders):
    return ms.changelog.aggregate(
        orders,
        by="customer",
        of={
            "orders": ms.windows.count(),
            "total": ms.windows.sum("amount"),
            "least": ms.windows.min("amount"),
        },
    )


def order(number: int, customer: str, amount: int) -> dict[str, object]:
    return {"id": number, "customer": customer, "amount": amount}


def show() -> None:
    app.run(once=True)
    for row in app.view("spent").scan():
        told = f"{row['orders']} orders  {row['total']}, the least {row['least']}"
        print(f"{row['customer']:5} {told}")


if __name__ == "__main__":
    with app:
        app.publish("orders", [order(1, "ada", 30), order(2, "ada", 20), order(3, "bob", 10)])
        show()
        print("-- ada cancels the 20, bob's order becomes ada's --")
        app.publish("orders", [{"id": 2, "_change": "delete"}, order(3, "ada", 10)])
        show()
