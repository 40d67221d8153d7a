"""A change feed: the rows of a view, then every change of them, each with a token to go on from.

    python examples/change_feed.py

Each batch of the job that changes something is a version of the view. It prints

    row      {'page': '/', 'count': 2}  version 1
    current  None  version 1
    upsert   {'page': '/', 'count': 3}  version 2
    -- later, in another process, with the last token --
    upsert   {'page': '/cart', 'count': 1}  version 3
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import millstream as ms

app = ms.App("change_feed")
app.topic("clicks", schema="page STRING")


@app.view(key="page")
def visits(clicks):
    return clicks.groupBy("page").count()


def click(*pages: str) -> None:
    app.publish("clicks", [{"page": page} for page in pages])
    app.run(once=True)  # in an application, `millstream run` does this all the time


def tell(feed: Iterator[Any], count: int) -> str | None:
    """The next changes, waited for; the token of the last one."""
    for change in islice(feed, count):
        print(f"{change.kind:8} {change.row}  version {change.version}")
    return change.token


if __name__ == "__main__":
    with app:
        click("/", "/")
        with app.view("visits") as view, view.subscribe() as feed:
            tell(feed, 2)
            click("/")
            last = tell(feed, 1)
        print("-- later, in another process, with the last token --")
        with app.view("visits") as view, view.subscribe(since=last) as feed:
            click("/cart")
            tell(feed, 1)
