"""Hopping windows: the mean temperature of ten minutes, anew every five.

    python examples/hopping_windows.py

Windows overlap: each reading is in two of them. It prints

    11:55-12:05 18.0
    12:00-12:10 19.0
    12:05-12:15 20.0
"""

from datetime import datetime

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

import millstream as ms

app = ms.App("hopping_windows")
app.topic("readings", schema="celsius DOUBLE, at TIMESTAMP", event_time="at")


@app.view(key="window")
def temperature(readings):
    windows = ms.windows.hopping("10 minutes", "5 minutes")
    return readings.groupBy(windows).agg(F.avg("celsius").alias("mean"))


def reading(celsius: float, clock: str) -> dict[str, object]:
    return {"celsius": celsius, "at": datetime.fromisoformat(f"2025-07-01T{clock}Z")}


if __name__ == "__main__":
    with app:
        app.publish("readings", [reading(18.0, "12:01"), reading(20.0, "12:07")])
        app.run(once=True)
        for row in app.view("temperature").scan():
            start, end = row["window"]["start"], row["window"]["end"]
            print(f"{start:%H:%M}-{end:%H:%M} {row['mean']}")
