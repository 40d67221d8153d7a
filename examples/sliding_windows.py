"""Sliding windows: at each payment, what its customer has spent in the ten minutes up to it.

    python examples/sliding_windows.py

A window ends with each event. A payment that comes late changes the sums of those after it. It
prints

    ada 12:00  20
    ada 12:08  50
    ada 12:15  90
    -- one of 12:05 comes late --
    ada 12:00  20
    ada 12:05  25
    ada 12:08  55
    ada 12:15  90
"""

from datetime import datetime

import millstream as ms

app = ms.App("sliding_windows")
app.topic(
    "payments", schema="customer STRING, amount INT, at TIMESTAMP", event_time="at", late="correct"
)


@app.view(key=["customer", "at"])
def spent_lately(payments):
    return ms.windows.aggregate(
        payments,
        ms.windows.sliding("10 minutes"),
        by="customer",
        of={"spent": ms.windows.sum("amount")},
    )


def pay(amount: int, clock: str) -> None:
    at = datetime.fromisoformat(f"2025-07-01T{clock}Z")
    app.publish("payments", {"customer": "ada", "amount": amount, "at": at})


def show() -> None:
    app.run(once=True)
    for row in app.view("spent_lately").scan():
        print(f"{row['customer']} {row['at']:%H:%M}  {row['spent']}")


if __name__ == "__main__":
    with app:
        pay(20, "12:00")
        pay(30, "12:08")
        pay(60, "12:15")
        show()
        print("-- one of 12:05 comes late --")
        pay(5, "12:05")
        show()
