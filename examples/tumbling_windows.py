"""Tumbling windows: how often each page was visited, minute by minute.

    python examples/tumbling_windows.py

A click counts in the minute in which it happened, whenever it comes. It prints

    12:00 /      2
    12:00 /cart  1
    12:01 /      1
"""

from datetime import datetime

import millstream as ms

app = ms.App("tumbling_windows")
app.topic("clicks", schema="page STRING, at TIMESTAMP", event_time="at")


@app.view(key=["window", "page"])
def visits(clicks):
    return clicks.groupBy(ms.windows.tumbling("1 minute"), "page").count()


def click(page: str, clock: str) -> dict[str, object]:
    return {"page": page, "at": datetime.fromisoformat(f"2025-07-01T{clock}Z")}


if __name__ == "__main__":
    with app:
        app.publish("clicks", [click("/", "12:00:01"), click("/", "12:01:00")])
        app.publish("clicks", [click("/cart", "12:00:59"), click("/", "12:00:30")])
        app.run(once=True)
        for row in app.view("visits").scan():
            print(f"{row['window']['start']:%H:%M} {row['page']:5}  {row['count']}")
