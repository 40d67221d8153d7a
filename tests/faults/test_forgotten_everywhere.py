"""After an erasure no byte that is left tells what was forgotten, nor do all keys that are left: in
segments, indexes, snapshots, views, archives, and a backup from before."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import millstream as ms
from millstream.base.ports import BatchReceipt
from millstream.eventsourcing.key_book import SubjectForgotten
from millstream.eventsourcing.personal import FORGOTTEN, Personal
from millstream.eventsourcing.query import Query
from millstream.schemas.declaration import schema_of
from millstream.views.stores.sqlite.file import SqliteStore
from tests.support import byte_search, key_thief

ADA, BOB = "canary-4711@ada.example", "canary-0815@bob.example"
PLAIN = "canary-that-is-not-personal"
VIEW = "user STRING, email STRING"
COMMAND_SECONDS_MAX = 60


@ms.event
class Registered:
    email: Personal[str]
    plan: str


@ms.event
class Moved:
    email: Personal[str]


class User(ms.Aggregate):
    email = ""
    moves = 0

    def register(self, email: str) -> Iterator[Registered]:
        yield Registered(email, PLAIN)

    def move(self, email: str) -> Iterator[Moved]:
        yield Moved(email)

    def on_Registered(self, event: Registered) -> None:  # noqa: N802 - the name of the event
        self.email = event.email

    def on_Moved(self, event: Moved) -> None:  # noqa: N802 - the same
        self.email, self.moves = event.email, self.moves + 1


class Shop:
    """An application with users, whose data is in all the places that there are."""

    def __init__(self, root: Path) -> None:
        self.data, self.keyring = root / "shop.millstream", root / "shop.millstream.keyring"
        self.archive, self.backup = root / "archive", root / "backup"
        self.keyring_before = root / "keyring.before"
        self.places = (self.data, self.archive, self.backup)

    def open(self) -> ms.App:
        return ms.App("shop", data=self.data)

    def fill(self) -> None:
        with self.open() as app:
            self.use(app)
            for topic in ("shop.events", "shop.snapshots", "shop.keys"):
                self._archive(app, topic)
        shutil.copytree(self.data, self.backup)
        shutil.copytree(self.keyring, self.keyring_before)

    def use(self, app: ms.App) -> None:
        users = app.aggregates(User, snapshot_every=3)
        for name, email in (("ada", ADA), ("bob", BOB)):
            users[name].register(email, id=f"register-{name}")
            for number in range(8):
                users[name].move(f"{number}-{email}", id=f"move-{name}-{number}")
        with app.hosting():  # over the topic of commands
            users["ada"].move(f"8-{ADA}", wait=False).result(COMMAND_SECONDS_MAX)
        self._keep_view(app)

    def _keep_view(self, app: ms.App) -> None:
        """As a job would: what is sealed in the topic is a text of the view."""
        rows = [
            {"user": one.stream, "email": msgspec.json.decode(one.data)["email"]}
            for partition in range(app.event_store().partitions)
            for one in app.event_store().query(Query(types=["Registered"]), partition=partition)
        ]
        view = self.view.writer(1)
        epoch = view.claim("users", schema_of(VIEW))
        receipt = BatchReceipt(job="users", epoch=epoch, query="a", batch=0, positions={})
        view.write(receipt, pa.Table.from_pylist(rows))
        view.close()

    @property
    def view(self) -> SqliteStore:
        return SqliteStore(self.data / "users.sqlite", view="users", key=["user"])

    def _archive(self, app: ms.App, topic: str) -> None:
        command = [sys.executable, "-m", "millstream", "topics", "archive", topic, "--all"]
        places = ["--to", str(self.archive), "--brokers", app.bootstrap]
        subprocess.run(
            [*command, *places], check=True, timeout=COMMAND_SECONDS_MAX, capture_output=True
        )

    def places_of(self, text: str) -> list[str]:
        return byte_search.places_of(text, byte_search.texts_in(*self.places))

    def stolen(self, keyring: Path | None = None) -> set[bytes]:
        """What opens with all keys and key files that can be found."""
        texts = [data for _, data in byte_search.texts_in(*self.places)]
        files = [file.read_bytes() for file in (keyring or self.keyring).iterdir()]
        keys = list(key_thief.unwrapped(key_thief.wrapped_in(texts), files))
        values = [key_thief.opened(one, keys, files) for one in key_thief.tokens_in(texts)]
        states = [
            key_thief.opened_snapshot(one, keys, f"{one[0]} {one[1]}")
            for one in key_thief.snapshots_in(texts)
        ]
        passing = key_thief.passing_in(texts, files, "User:ada move")
        return {one for one in (*values, *states, *passing) if one is not None}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_no_byte_and_no_key_that_is_left_tells_what_was_forgotten(shop: Shop) -> None:
    shop.fill()
    # The controls: what is not personal is found, and the thief can open what is sealed.
    kinds = {Path(place.split(",")[0]).suffix for place in shop.places_of(PLAIN)}
    assert kinds >= {".log", ".parquet"}
    assert any(str(shop.backup) in place for place in shop.places_of(PLAIN))
    assert any("shop.commands-" in place for place in shop.places_of("sealed-passing:1:"))
    before = shop.stolen()
    assert {f'"{ADA}"'.encode(), f'"{BOB}"'.encode(), f'"7-{ADA}"'.encode()} <= before
    assert any(b'"moves"' in one and ADA.encode() in one for one in before)  # a snapshot
    assert f'{{"email":"8-{ADA}"}}'.encode() in before  # arguments of a command
    assert shop.places_of(ADA) == shop.places_of(BOB) == []

    with shop.open() as app:
        users = app.aggregates(User)
        assert users["ada"].state().email == f"8-{ADA}"
        erasure = app.forget("ada", why="she asked", by="the desk")
        assert erasure.streams == {"User:ada": 10}
        assert (erasure.why, erasure.by, erasure.is_repeat) == ("she asked", "the desk", False)
        assert users["ada"].state().email is FORGOTTEN  # also what was in memory
        assert users["ada"].state().moves == 9
        assert users["bob"].state().email == f"7-{BOB}"

    assert shop.places_of(ADA) == []
    after = shop.stolen()
    assert after == {one for one in before if ADA.encode() not in one}
    assert not any(ADA.encode() in one for one in after)
    # It is the wrapping key that made the difference: who has an old copy of it has all.
    assert shop.stolen(shop.keyring_before) == before


def test_a_forgotten_subject_is_refused_until_it_consents(shop: Shop) -> None:
    with shop.open() as app:
        users = app.aggregates(User, snapshot_every=3)
        users["ada"].register(ADA)
        app.forget("ada")
        with pytest.raises(SubjectForgotten, match=r"app\.consent"):
            users["ada"].move("new@ada.example")
        assert users["ada"].version == 1
        assert app.consent("ada", why="she came back")
        for number in range(5):
            users["ada"].move(f"{number}@ada.example")
        assert users["ada"].state().email == "4@ada.example"
        assert users["ada"].state(version=1).email is FORGOTTEN
        assert [one.event.email for one in users["ada"].history()][:2] == [
            FORGOTTEN,
            "0@ada.example",
        ]
    with shop.open() as app:
        assert app.aggregates(User)["ada"].state().email == "4@ada.example"
        with app.acting(by="the desk"):
            again = app.forget("ada")
        assert again.by == "the desk"
        assert again.streams == {"User:ada": 6}
        assert not again.is_repeat
        assert app.forget("ada").is_repeat


def test_rows_of_views_are_revealed_until_they_are_forgotten(shop: Shop) -> None:
    with shop.open() as app:
        shop.use(app)
        reader = shop.view.reader()
        rows = reader.scan()
        reader.close()
        assert all(row["email"].startswith("sealed:1:") for row in rows)
        assert app.reveal(rows) == [
            {"user": "User:ada", "email": ADA},
            {"user": "User:bob", "email": BOB},
        ]
        app.forget("ada")
        assert [row["email"] for row in app.reveal(rows)] == [FORGOTTEN, BOB]
