"""Two tables: timelines that follow both who writes what, and who follows whom.

    python examples/join_tables.py

Who follows gets all messages at once, who unfollows loses them. It prints

    bob reads ada: hello
    -- cy follows ada, bob unfollows, ada edits --
    cy reads ada: hello, world
"""

import millstream as ms

app = ms.App("join_tables")
app.table("messages", schema="id INT, author STRING, text STRING", key="id")
app.table("follows", schema="reader STRING, author STRING", key=["reader", "author"])


@app.view(key=["reader", "author", "id"])
def timelines(messages, follows):
    return ms.joins.tables(messages, follows, on="author")


def show() -> None:
    app.run(once=True)
    for row in app.view("timelines").scan():
        print(f"{row['reader']} reads {row['author']}: {row['text']}")


if __name__ == "__main__":
    with app:
        app.publish("messages", {"id": 1, "author": "ada", "text": "hello"})
        app.publish("follows", {"reader": "bob", "author": "ada"})
        show()
        print("-- cy follows ada, bob unfollows, ada edits --")
        app.publish("follows", {"reader": "cy", "author": "ada"})
        app.publish("follows", {"reader": "bob", "author": "ada", "_change": "delete"})
        app.publish("messages", {"id": 1, "author": "ada", "text": "hello, world"})
        show()
