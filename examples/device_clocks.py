"""Devices with wrong clocks: their times put right, and their events kept in order.

    python examples/device_clocks.py

A sensor's clock is an hour behind. It says when it measured and when it sent, the server notes when
it received. The quickest message tells how far the clock is off, a slow one how far at least: if no
message takes longer than a minute, the error is known. It prints

    11:00:00 by its clock, 12:00:01 by ours, at most 60.0 s too late
    11:00:10 by its clock, 12:00:11 by ours, at most 42.0 s too late
    11:00:20 by its clock, 12:00:21 by ours, at most 42.0 s too late
"""

from datetime import datetime

import millstream as ms

app = ms.App("device_clocks")
app.topic(
    "readings",
    schema="device STRING, at TIMESTAMP, sent_at TIMESTAMP, received_at TIMESTAMP",
    key="device",
)


@app.view(key=["device", "at"])
def readings_by_our_clock(readings):
    return ms.clocks.correct_clock(readings, delay_max="1 minute")


def reading(*, at: str, sent: str, received: str) -> dict[str, object]:
    times = {"at": at, "sent_at": sent, "received_at": received}
    told = {name: datetime.fromisoformat(f"2025-07-01T{clock}Z") for name, clock in times.items()}
    return {"device": "roof", **told}


if __name__ == "__main__":
    with app:
        app.publish("readings", reading(at="11:00:00", sent="11:00:02", received="12:00:03"))
        app.publish("readings", reading(at="11:00:10", sent="11:00:11", received="12:00:30"))
        app.publish("readings", reading(at="11:00:20", sent="11:00:40", received="12:00:45"))
        app.run(once=True)
        for row in app.view("readings_by_our_clock").scan():
            print(
                f"{row['at']:%H:%M:%S} by its clock, {row['corrected_at']:%H:%M:%S} by ours, "
                f"at most {row['uncertainty_ms'] / 1000:.1f} s too late"
            )
