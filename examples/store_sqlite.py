"""A view in SQLite, the default: read your own write, ask in SQL, look into the past.

    python examples/store_sqlite.py

Each view is one file under the app's data, and needs no server. It prints

    after the write: {'item': 'tea', 'price': 4.5}
    in SQL: [{'items': 2, 'mean': 17.25}]
    now: {'item': 'tea', 'price': 5.0}
    version 1: {'item': 'tea', 'price': 4.5}
"""

import millstream as ms

app = ms.App("store_sqlite")
app.table("prices", schema="item STRING, price DOUBLE", key="item")


@app.view(key="item", history="7 days")
def price_list(prices):
    return prices


if __name__ == "__main__":
    with app, app.view("price_list") as view:
        receipts = app.publish(
            "prices", [{"item": "tea", "price": 4.5}, {"item": "pot", "price": 30.0}]
        )
        app.run(once=True)  # in an application, `millstream run` does this all the time
        print("after the write:", view.get("tea", after=receipts))
        print("in SQL:", view.sql("SELECT count(*) items, avg(price) mean FROM price_list"))
        app.publish("prices", {"item": "tea", "price": 5.0})
        app.run(once=True)
        print("now:", view.get("tea"))
        print("version 1:", view.as_of(1).get("tea"))
