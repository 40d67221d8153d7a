"""Session windows: the visits of each user, which end when nothing was clicked for half an hour.

    python examples/session_windows.py

A click that comes late can make one visit of two. It prints

    ada 12:00-12:30  /
    ada 13:00-13:50  /cart /pay
    -- one of 12:30 comes late --
    ada 12:00-13:50  / /tea /cart /pay
"""

from datetime import datetime

import millstream as ms

app = ms.App("session_windows")
app.topic(
    "clicks", schema="user STRING, page STRING, at TIMESTAMP", event_time="at", late="correct"
)


@app.view(key=["user", "session_start"])
def visits(clicks):
    return ms.windows.aggregate(
        clicks,
        ms.windows.session("30 minutes"),
        by="user",
        of={"pages": ms.windows.collect("page")},  # by event time
    )


def click(page: str, clock: str) -> None:
    at = datetime.fromisoformat(f"2025-07-01T{clock}Z")
    app.publish("clicks", {"user": "ada", "page": page, "at": at})


def show() -> None:
    app.run(once=True)
    for row in app.view("visits").scan():
        start, end = row["session_start"], row["session_end"]
        print(f"{row['user']} {start:%H:%M}-{end:%H:%M}  {' '.join(row['pages'])}")


if __name__ == "__main__":
    with app:
        click("/", "12:00")
        click("/cart", "13:00")
        click("/pay", "13:20")
        show()
        print("-- one of 12:30 comes late --")
        click("/tea", "12:30")
        show()
