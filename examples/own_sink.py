"""A sink of your own: rows into your database, exactly once, by keeping the receipt with them.

    python examples/own_sink.py

Spark repeats its last batch after a crash. Whoever has its receipt already writes nothing. Here the
batch is handed over twice on purpose. It prints

    first time: 2 rows
    again: 0 rows
    invoices: [(1, 'ada', 40.0), (2, 'bob', 120.0)]
"""

import sqlite3

import millstream as ms

app = ms.App("own_sink")
app.topic("orders", schema="id INT, customer STRING, amount DOUBLE")

database = sqlite3.connect("shop.db", check_same_thread=False)  # Spark calls from its own thread
database.executescript(
    """
    CREATE TABLE invoices (id INTEGER PRIMARY KEY, customer TEXT, amount REAL);
    CREATE TABLE receipts (job TEXT, query TEXT, batch INT, PRIMARY KEY (job, query, batch));
    """
)


def write(rows, receipt) -> int:
    """How many rows were new: rows and receipt are one transaction."""
    key = (receipt.job, receipt.query, receipt.batch)
    with database:
        if not database.execute("INSERT OR IGNORE INTO receipts VALUES (?, ?, ?)", key).rowcount:
            return 0
        found = [tuple(row) for row in rows.collect()]
        return database.executemany("INSERT INTO invoices VALUES (?, ?, ?)", found).rowcount


def write_twice(rows, receipt) -> None:
    print(f"first time: {write(rows, receipt)} rows")
    print(f"again: {write(rows, receipt)} rows")


@app.sink(write_twice)
def invoices(orders):
    return orders


if __name__ == "__main__":
    with app:
        app.publish("orders", {"id": 1, "customer": "ada", "amount": 40.0})
        app.publish("orders", {"id": 2, "customer": "bob", "amount": 120.0})
        app.run(once=True)
    print("invoices:", database.execute("SELECT * FROM invoices ORDER BY id").fetchall())
    database.close()
