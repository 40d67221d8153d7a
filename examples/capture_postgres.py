"""A PostgreSQL table as a stream, read from the database's own log: nothing is polled.

    export SHOP_DATABASE=postgresql://mill:stream@localhost/shop
    python examples/capture_postgres.py

The server needs wal_level=logical, the user REPLICATION; `millstream capture check $SHOP_DATABASE
--table orders` says what is missing. All changes of a transaction come together. It prints

    r {'id': 1, 'item': 'tea', 'total': '4.50'}
    c {'id': 2, 'item': 'pot', 'total': '30.00'}
    u {'id': 1, 'item': 'tea', 'total': '5.00'}
"""

import os

import psycopg

import millstream

app = millstream.App("capture_postgres")
app.capture("${SHOP_DATABASE}", tables=["orders"], name="shop")

TABLE = "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, total NUMERIC(10, 2))"


def tell(since: str | None = None) -> str | None:
    with app.changes("orders", since=since, follow=False) as changes:
        for change in changes:
            print(change.op, change.after)
            since = change.token
    return since


if __name__ == "__main__":
    shop = psycopg.connect(os.environ["SHOP_DATABASE"])
    with app, shop:
        shop.execute(TABLE)
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 4.50)")
        shop.commit()
        app.run(once=True)  # over what is there; app.run() goes on until Ctrl-C
        last = tell()
        shop.execute("INSERT INTO orders VALUES (2, 'pot', 30)")
        shop.execute("UPDATE orders SET total = 5 WHERE id = 1")
        shop.commit()
        app.run(once=True)
        tell(since=last)
