"""A view in Redis: a cache that is never written by hand, and so never disagrees for long.

    export SHOP_REDIS=redis://localhost:6379/0
    python examples/store_redis.py

The database's changes go through the log; the cache follows it. It prints

    {'item': 'tea', 'price': 4.5}
    {'item': 'tea', 'price': 5.0}
    None
"""

import os
from typing import Any

import millstream as ms

app = ms.App("store_redis")
app.table("prices", schema="item STRING, price DOUBLE", key="item")


@app.view(key="item", store=ms.stores.Redis(os.environ["SHOP_REDIS"]))
def cache(prices):
    return prices


def change(row: dict[str, Any]) -> None:
    receipt = app.publish("prices", row)
    app.run(once=True)  # in an application, `millstream run` does this all the time
    with app.view("cache") as view:
        print(view.get("tea", after=receipt))


if __name__ == "__main__":
    with app:
        change({"item": "tea", "price": 4.5})
        change({"item": "tea", "price": 5.0})
        change({"item": "tea", "_change": "delete"})
