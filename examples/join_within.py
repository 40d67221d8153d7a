"""Two streams: which ads were clicked within ten minutes after they were shown.

    python examples/join_within.py

A click of the eleventh minute does not count, nor does one before the ad was there. It prints

    ad a1, shown 12:00, clicked 12:04 by ada
"""

from datetime import datetime

import millstream as ms

app = ms.App("join_within")
app.topic("shown", schema="ad STRING, at TIMESTAMP", event_time="at")
app.topic("clicked", schema="ad STRING, user STRING, at TIMESTAMP", event_time="at")


@app.view(key=["ad", "user"])
def ad_clicks(shown, clicked):
    return ms.joins.within(shown, clicked, on="ad", within=("0 seconds", "10 minutes"))


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2025-07-01T{clock}Z")


if __name__ == "__main__":
    with app:
        app.publish("shown", [{"ad": "a1", "at": at("12:00")}, {"ad": "a2", "at": at("12:01")}])
        app.publish("clicked", {"ad": "a1", "user": "ada", "at": at("12:04")})
        app.publish("clicked", {"ad": "a2", "user": "bob", "at": at("12:12")})
        app.publish("clicked", {"ad": "a2", "user": "eve", "at": at("12:00")})
        app.run(once=True)
        for row in app.view("ad_clicks").scan():
            shown, clicked = f"{row['at']:%H:%M}", f"{row['at_right']:%H:%M}"
            print(f"ad {row['ad']}, shown {shown}, clicked {clicked} by {row['user']}")
