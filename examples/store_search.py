"""A view in a full-text index: search that follows a table, and forgets what was deleted.

    python examples/store_search.py

It prints

    solar: Solar panels for flat roofs
    solar: Wind or solar?
    after the first was taken back: Wind or solar?
"""

import millstream as ms

app = ms.App("store_search")
app.table("articles", schema="id INT, title STRING, body STRING", key="id")


@app.view(key="id", store=ms.stores.SearchIndex(text=["title", "body"]))
def library(articles):
    return articles


def article(number: int, title: str, body: str) -> dict[str, object]:
    return {"id": number, "title": title, "body": body}


def titles(words: str) -> list[str]:
    """The best match first."""
    app.run(once=True)
    with app.view("library") as view:
        return [row["title"] for row in view.search(words)]


if __name__ == "__main__":
    with app:
        app.publish("articles", article(1, "Solar panels for flat roofs", "Solar, step by step."))
        app.publish("articles", article(2, "Wind or solar?", "A comparison of costs and roofs."))
        app.publish("articles", article(3, "Heat pumps", "How they work."))
        for title in titles("solar"):
            print("solar:", title)
        app.publish("articles", {"id": 1, "_change": "delete"})
        print("after the first was taken back:", *titles("solar"))
