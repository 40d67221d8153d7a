"""A stream and a table, as it is now: each order gets the row of its customer.

    python examples/join_enrich.py

An order keeps what it found: that ada moves does not change where her first order went. It prints

    order 1 of ada to Paris
    order 2 of ada to Rome
    order 3 of bob to None
"""

import millstream as ms

app = ms.App("join_enrich")
app.topic("orders", schema="id INT, customer STRING")
app.table("customers", schema="customer STRING, city STRING", key="customer")


@app.view(key="id")
def addressed_orders(orders, customers):
    return ms.joins.enrich(orders, customers, on="customer")


if __name__ == "__main__":
    with app:
        app.publish("customers", {"customer": "ada", "city": "Paris"})
        app.publish("orders", {"id": 1, "customer": "ada"})
        app.run(once=True)
        app.publish("customers", {"customer": "ada", "city": "Rome"})
        app.publish("orders", [{"id": 2, "customer": "ada"}, {"id": 3, "customer": "bob"}])
        app.run(once=True)
        for row in app.view("addressed_orders").scan():
            print(f"order {row['id']} of {row['customer']} to {row['city']}")
