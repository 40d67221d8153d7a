"""What a job makes of events with personal data: checkpoints, states, views and their feeds have
sealed values only, and nothing that is left opens them after an erasure."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import millstream as ms
from millstream.eventsourcing.command_calls import call_of
from tests.support import byte_search, guesses, key_thief

BORN = date(1984, 7, 13)
DECADE = date(1980, 1, 1)
CANARY, PLAIN = "canary-4711@ada.example", "canary-that-is-not-personal"


@ms.event(subject="user")
class Joined:
    user: str
    email: ms.Personal[str]
    born: ms.Personal[date]
    plan: str


class Member(ms.Aggregate):
    email = ""

    def join(self, user: str, email: str, born: date) -> Iterator[Joined]:
        yield Joined(user, email, born, PLAIN)

    def on_Joined(self, event: Joined) -> None:  # noqa: N802 - the name of the event
        self.email = event.email


@pytest.fixture
def app(spark: SparkSession, tmp_path: Path) -> Iterator[ms.App]:
    """With a broker of its own, so that its log is among what is looked through."""
    with ms.App("club", data=tmp_path / "club") as app:
        yield app


def with_views(app: ms.App) -> None:
    @app.view(key="user")
    def addresses(events: DataFrame) -> DataFrame:
        user, email = f.col("data.user").alias("user"), f.max("data.email").alias("email")
        born, plan = f.max("data.born").alias("born"), f.max("data.plan").alias("plan")
        return events.groupBy(user).agg(email, born, plan)


def birthdays_guessed(texts: Sequence[bytes], folder: Path) -> set[str]:
    """Of ada, by who knows all else of her, and tries ten years with all keys that are there."""
    files = [file.read_bytes() for file in folder.rglob("*.key")]
    assert files
    days = (DECADE + timedelta(days=number) for number in range(3_652))
    candidates = {str(day): spellings(day) for day in days}
    keys = key_thief.keys_left(texts, files)
    return guesses.found_by_trying(candidates, guesses.pieces_in(texts), keys)


def spellings(day: date) -> Iterator[bytes]:
    """What may be hashed of it: alone, as JSON, in its event, in its command."""
    yield str(day).encode()
    yield msgspec.json.encode(day)
    yield msgspec.json.encode({"user": "ada", "email": CANARY, "born": day, "plan": PLAIN})
    yield call_of(Member.__plan__, "join", ("ada", CANARY, day), {}).encoded()


@pytest.mark.full
def test_no_checkpoint_or_view_of_a_job_tells_what_was_forgotten(
    app: ms.App, tmp_path: Path
) -> None:
    members = app.aggregates(Member, partitions=1)
    with_views(app)
    for number, (user, email) in enumerate((("ada", CANARY), ("bob", "bob@x.org"))):
        receipt = members[str(number)].join(user, email, BORN, id=f"join-{number}")
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

    assert birthdays_guessed([text for _, text in texts], tmp_path) == {str(BORN)}  # the control
    app.forget("ada", why="she asked")
    app.run(once=True)
    by_user = {row["user"]: row["email"] for row in app.reveal(rows)}
    assert by_user == {"ada": ms.FORGOTTEN, "bob": "bob@x.org"}
    left = list(byte_search.texts_in(tmp_path))
    assert byte_search.places_of(CANARY, left) == []
    assert birthdays_guessed([text for _, text in left], tmp_path) == set()
