"""A database as a stream: every change of a SQLite table, from whoever writes it.

    python examples/capture_sqlite.py

Rows that are there already come first, then each change, once and in order. A token says where to
go on. It prints

    r None -> {'id': 1, 'item': 'tea', 'price': 4}
    u {'id': 1, 'item': 'tea', 'price': 4} -> {'id': 1, 'item': 'tea', 'price': 5}
    c None -> {'id': 2, 'item': 'pot', 'price': 30}
    d {'id': 2, 'item': 'pot', 'price': 30} -> None
"""

import sqlite3

import millstream

app = millstream.App("capture_sqlite")
app.capture("sqlite:///shop.db", tables=["products"])


def tell(since: str | None = None) -> str | None:
    """Every change from a token on; the token of the last one."""
    with app.changes("products", since=since, follow=False) as changes:
        for change in changes:
            print(change.op, change.before, "->", change.after)
            since = change.token
    return since


if __name__ == "__main__":
    shop = sqlite3.connect("shop.db", isolation_level=None)  # each statement is a transaction
    shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, item TEXT, price INTEGER)")
    shop.execute("INSERT INTO products VALUES (1, 'tea', 4)")
    with app:
        app.run(once=True)  # over what is there; app.run() goes on until Ctrl-C
        last = tell()
        shop.execute("UPDATE products SET price = 5 WHERE id = 1")
        shop.execute("INSERT INTO products VALUES (2, 'pot', 30)")
        shop.execute("DELETE FROM products WHERE id = 2")
        app.run(once=True)
        tell(since=last)
    shop.close()
