"""An application that captures a database: run and ended with it, read in it and over HTTP."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from millstream import App
from millstream.capture.captures_topic import write_wanted
from millstream.capture.control import CaptureControl
from millstream.capture_processes import CapturesFailed
from tests.clients.steps import unique_name
from tests.support.serve_process import ServeProcess

WITHIN_S = 120.0
APP = """\
import millstream

app = millstream.App("shop")
app.capture({url!r}, tables=["orders"], name={name!r})
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as shop:
        shop.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT);"
            "INSERT INTO orders VALUES (1, 'tea');"
        )
    return file


@pytest.fixture
def name() -> str:
    return unique_name("shop")


@pytest.fixture
def app(bootstrap: str, database: Path, name: str, tmp_path: Path) -> Iterator[App]:
    app = App("shop", data=tmp_path / "data", brokers=bootstrap)
    app.capture(f"sqlite:///{database}", tables=["orders"], name=name)
    yield app
    app.close()


def insert(database: Path, number: int) -> None:
    with closing(sqlite3.connect(database, timeout=WITHIN_S)) as shop, shop:
        shop.execute("INSERT INTO orders VALUES (?, 'bread')", [number])


def test_an_application_of_captures_alone_runs_them_until_it_is_stopped(
    app: App, database: Path
) -> None:
    running = threading.Thread(target=app.run)
    running.start()
    try:
        with app.changes("orders", timeout=WITHIN_S) as changes:
            assert next(changes).after == {"id": 1, "item": "tea"}
            insert(database, 2)
            assert next(changes).after == {"id": 2, "item": "bread"}
    finally:
        app.stop()
        running.join(WITHIN_S)
    assert not running.is_alive()


def test_a_stop_that_comes_while_captures_are_being_started_is_heard(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    define = app.captures._define

    def define_and_stop() -> None:
        define()
        app.stop()

    monkeypatch.setattr(app.captures, "_define", define_and_stop)
    running = threading.Thread(target=app.run)
    running.start()
    running.join(WITHIN_S)
    is_heard = not running.is_alive()
    app.stop()
    running.join(WITHIN_S)
    assert is_heard


def test_a_run_over_what_is_there_has_captured_it_when_it_ends(app: App, database: Path) -> None:
    for number in (2, 3):
        insert(database, number)
        app.run(once=True)
        with app.changes("orders", follow=False) as changes:
            assert [change.key for change in changes][-1] == {"id": number}


def test_a_capture_that_cannot_run_is_named_with_its_reason(app: App, database: Path) -> None:
    with closing(sqlite3.connect(database)) as shop:
        shop.execute("DROP TABLE orders")
    with pytest.raises(CapturesFailed, match=r"^capture shop-\S+ has ended: .*orders"):
        app.run(once=True)


def test_a_capture_whose_definition_somebody_changes_opens_nothing(
    app: App, bootstrap: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that an application starts may open what its code says, and no more."""
    other = tmp_path / "other.db"
    define = app.captures._define

    def define_and_change() -> None:
        define()
        facts = {"name": name, "url": f"sqlite:///{other}", "tables": ["orders"]}
        key = json.dumps(["definition", name]).encode()
        write_wanted({"bootstrap.servers": bootstrap}, [(key, json.dumps(facts).encode())])

    monkeypatch.setattr(app.captures, "_define", define_and_change)
    with pytest.raises(CapturesFailed, match=r"differs from what was approved here: url was"):
        app.run(once=True)
    assert not other.exists()


def test_a_run_over_what_is_there_does_not_wait_for_a_capture_that_is_paused(
    app: App, bootstrap: str, database: Path, name: str
) -> None:
    app.run(once=True)
    CaptureControl({"bootstrap.servers": bootstrap}).pause(name)
    insert(database, 2)
    app.run(once=True)
    with app.changes("orders", follow=False) as changes:
        assert [change.key for change in changes] == [{"id": 1}]


def test_columns_are_known_from_the_last_capture_where_the_database_is_away(
    app: App, database: Path
) -> None:
    app.run(once=True)
    database.unlink()
    assert app.captures.table("orders").schema.ddl == "id BIGINT, item STRING"


@pytest.mark.full
def test_changes_are_served_over_http(
    app: App, bootstrap: str, database: Path, name: str, tmp_path: Path
) -> None:
    app.run(once=True)
    (tmp_path / "shop.py").write_text(APP.format(url=f"sqlite:///{database}", name=name))
    with ServeProcess(tmp_path / "shop.py", env={"MILLSTREAM_BROKERS": bootstrap}) as server:
        url = f"{server.url}/v1/tables/orders/changes"
        answer = httpx.get(url, params={"timeout": 60}, timeout=WITHIN_S).json()
        assert [one["after"] for one in answer["results"]] == [{"id": 1, "item": "tea"}]
        insert(database, 2)
        app.run(once=True)
        assert next(streamed(url, since=answer["last"]))["after"] == {"id": 2, "item": "bread"}


def streamed(url: str, *, since: str) -> Iterator[dict[str, object]]:
    headers = {"Accept": "text/event-stream"}
    with httpx.stream(
        "GET", url, params={"since": since}, headers=headers, timeout=WITHIN_S
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))
