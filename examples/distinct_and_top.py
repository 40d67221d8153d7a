"""Distinct values and first rows of a table, kept while its rows come, change and go.

    python examples/distinct_and_top.py

When one of the two best leaves, the next comes up; a team is there as long as it has a player. It
prints

    1. ada 90, 2. bob 70; teams: blue, red
    -- ada leaves, and was the only one of team red --
    1. bob 70, 2. cy 50; teams: blue
"""

import millstream as ms

app = ms.App("distinct_and_top")
app.table("players", schema="name STRING, team STRING, points INT", key="name")


@app.view(key="name")
def best(players):
    return ms.changelog.top(players, 2, order_by="-points", rank="place")


@app.view(key="team")
def teams(players):
    return ms.changelog.distinct(players, "team")


def player(name: str, team: str, points: int) -> dict[str, object]:
    return {"name": name, "team": team, "points": points}


def show() -> None:
    app.run(once=True)
    first = app.view("best").scan(order_by="place")
    named = ", ".join(f"{row['place']}. {row['name']} {row['points']}" for row in first)
    print(f"{named}; teams: {', '.join(row['team'] for row in app.view('teams').scan())}")


if __name__ == "__main__":
    with app:
        app.publish("players", [player("ada", "red", 90), player("bob", "blue", 70)])
        app.publish("players", player("cy", "blue", 50))
        show()
        print("-- ada leaves, and was the only one of team red --")
        app.publish("players", {"name": "ada", "_change": "delete"})
        show()
