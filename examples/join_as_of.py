"""A stream and a table, as it was then: each sale is taxed at the rate of its day.

    python examples/join_as_of.py

A rate that is entered afterwards corrects the sales that it is for. It prints

    sale 1 of 2025-06-30: 19 %
    sale 2 of 2025-07-02: 16 %
    -- the rate of 2025-06-15 is entered late --
    sale 1 of 2025-06-30: 7 %
    sale 2 of 2025-07-02: 16 %
"""

from datetime import datetime

import millstream as ms

app = ms.App("join_as_of")
app.topic("sales", schema="id INT, country STRING, at TIMESTAMP", event_time="at", idle="never")
app.table(
    "rates",
    schema="country STRING, valid_from TIMESTAMP, percent INT",
    key=["country", "valid_from"],
    version_time="valid_from",
)


@app.view(key="id")
def taxed_sales(sales, rates):
    return ms.joins.as_of(
        sales, rates, on="country", at="at", late_versions="correct", keep="90 days"
    )


def day(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}T00:00:00Z")


def rate(start: str, percent: int) -> None:
    app.publish("rates", {"country": "de", "valid_from": day(start), "percent": percent})


def show() -> None:
    app.run(once=True)
    for row in app.view("taxed_sales").scan():
        print(f"sale {row['id']} of {row['at']:%Y-%m-%d}: {row['percent']} %")


if __name__ == "__main__":
    with app:
        rate("2025-01-01", 19)
        rate("2025-07-01", 16)
        app.publish("sales", {"id": 1, "country": "de", "at": day("2025-06-30")})
        app.publish("sales", {"id": 2, "country": "de", "at": day("2025-07-02")})
        show()
        print("-- the rate of 2025-06-15 is entered late --")
        rate("2025-06-15", 7)
        show()
