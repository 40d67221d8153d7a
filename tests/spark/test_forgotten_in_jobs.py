"""What a job makes of events with personal data: checkpoints, states, views and their feeds have
sealed values only, and nothing that is left opens them after an erasure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import millstream as ms
from tests.clients.steps import unique_name
from tests.spark.conftest import OURS_ALONE
from tests.support import byte_search, guesses

CANARY, PLAIN = "canary-4711@ada.example", "canary-that-is-not-personal"


@ms.event(subject="user")
class Joined:
    user: str
    email: ms.Personal[str]
    plan: str


class Member(ms.Aggregate):
    email = ""

    def join(self, user: str, email: str) -> Iterator[Joined]:
        yield Joined(user, email, PLAIN)

    def on_Joined(self, event: Joined) -> None:  # noqa: N802 - the name of the event
        self.email = event.email


@pytest.fixture
def app(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[ms.App]:
    with ms.App(unique_name("club"), data=tmp_path / "club", brokers=bootstrap) as app:
        yield app


def with_views(app: ms.App) -> None:
    @app.view(key="user")
    def addresses(events: DataFrame) -> DataFrame:
        user, email = f.col("data.user").alias("user"), f.max("data.email").alias("email")
        return events.groupBy(user).agg(email, f.max("data.plan").alias("plan"))


@pytest.mark.full
@OURS_ALONE
def test_no_checkpoint_or_view_of_a_job_tells_what_was_forgotten(
    app: ms.App, tmp_path: Path
) -> None:
    members = app.aggregates(Member, partitions=1)
    with_views(app)
    for number, (user, email) in enumerate((("ada", CANARY), ("bob", "bob@x.org"))):
        receipt = members[str(number)].join(user, email)
    app.run(once=True)
    with app.view("addresses") as view:
        rows = view.scan()
        assert view.get("bob", after=receipt) is not None
        with view.subscribe() as feed:
            changes = [next(feed) for _ in rows]
    assert all(row["email"].startswith("sealed:1:") for row in rows)
    assert {row["email"] for row in app.reveal(rows)} == {CANARY, "bob@x.org"}

    texts = list(byte_search.texts_in(tmp_path / "club"))
    found = byte_search.places_of(PLAIN, texts)
    assert any("state" in place for place in found), found  # the controls: what is plain is found
    assert any(".sqlite" in place for place in found), found
    assert byte_search.places_of(CANARY, texts) == []
    assert CANARY not in str(changes)
    for row in rows:  # and what is sealed
        assert any("state" in place for place in byte_search.places_of(row["email"], texts))

    app.forget("ada", why="she asked")
    app.run(once=True)
    by_user = {row["user"]: row["email"] for row in app.reveal(rows)}
    assert by_user == {"ada": ms.FORGOTTEN, "bob": "bob@x.org"}
    left = list(byte_search.texts_in(tmp_path))
    assert byte_search.places_of(CANARY, left) == []
    keys = [file.read_bytes() for file in tmp_path.rglob("*.key")]
    assert keys
    tried = {CANARY: [CANARY.encode(), f'"{CANARY}"'.encode()]}
    pieces = guesses.pieces_in(text for _, text in left)
    assert guesses.found_by_trying(tried, pieces, keys) == set()
