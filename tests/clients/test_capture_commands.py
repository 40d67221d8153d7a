"""`millstream capture`, over a database in a file: added, run, shown, dropped, on both brokers."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream import App
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli
from tests.support.waiting import eventually

WITHIN_S = 120.0


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


@pytest.fixture
def name() -> str:
    return unique_name("shop")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as shop:
        shop.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT);"
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT);"
            "INSERT INTO orders VALUES (1, 'tea'), (2, 'milk'); INSERT INTO notes VALUES (1, 'a');"
        )
    return file


@pytest.fixture
def shop(bootstrap: str, database: Path, name: str, tmp_path: Path) -> Iterator[App]:
    """Declares the same capture as the commands, to read its changes."""
    app = App("shop", data=tmp_path / "data", brokers=bootstrap)
    app.capture(url_of(database), tables=["orders", "notes"], name=name)
    yield app
    app.close()


def url_of(database: Path) -> str:
    return f"sqlite:///{database}"


def write(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database, timeout=WITHIN_S)) as shop, shop:
        for statement in statements:
            shop.execute(statement)


def changes(shop: App, table: str = "orders") -> list[tuple[str, Any]]:
    with shop.changes(table, follow=False) as found:
        return [(change.op, (change.key or {})["id"]) for change in found]


def listed(cli: Cli, name: str) -> dict[str, Any] | None:
    return next((one for one in cli.json("capture", "list") if one["capture"] == name), None)


class Run:
    """`millstream capture run NAME` in a process of its own, which has a child for the capture."""

    def __init__(self, bootstrap: str, name: str) -> None:
        command = [sys.executable, "-m", "millstream", "capture", "run", name]
        self.process = subprocess.Popen(
            [*command, "--brokers", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, told


@pytest.fixture
def running(bootstrap: str, cli: Cli, database: Path, name: str) -> Iterator[Run]:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    run = Run(bootstrap, name)
    eventually(lambda: child_of(cli, name) is not None, what="a capture", within_s=WITHIN_S)
    yield run
    if run.process.poll() is None:
        run.process.kill()
    run.process.communicate(timeout=WITHIN_S)


def child_of(cli: Cli, name: str) -> int | None:
    found = listed(cli, name)
    return found["process"] if found and found["state"] == "streaming" else None


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_a_capture_is_added_run_shown_and_dropped(
    cli: Cli, shop: App, database: Path, name: str
) -> None:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    assert (listed(cli, name) or {})["state"] == "never run"
    cli.run("capture", "run", name, "--once")
    assert changes(shop) == [("r", 1), ("r", 2)]
    write(
        database, "UPDATE orders SET item = 'rum' WHERE id = 1", "DELETE FROM orders WHERE id = 2"
    )
    cli.run("capture", "run", name, "--once")
    assert changes(shop)[2:] == [("u", 1), ("d", 2)]
    shown = cli.json("capture", "show", name)
    (table,) = shown["captured"]
    assert (table["topic"], table["key"]) == (f"{name}.orders", ["id"])
    assert [one["fraction"] for one in shown["load"]] == [1.0]
    assert f"{name}.orders" in cli.run("capture", "show", name)
    cli.run("capture", "drop", name, "--yes")
    assert listed(cli, name) is None
    assert "there is no capture" in cli.fail("capture", "show", name)


@pytest.mark.full
def test_a_table_is_added_to_a_capture_that_is_there(
    cli: Cli, shop: App, database: Path, name: str
) -> None:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    cli.run("capture", "run", name, "--once")
    cli.run("capture", "add", name, "--table", "notes")
    cli.run("capture", "run", name, "--once")
    assert changes(shop, "notes") == [("r", 1)]
    assert changes(shop) == [("r", 1), ("r", 2)]


def test_a_check_says_what_a_database_lacks_and_what_mends_it(cli: Cli, database: Path) -> None:
    assert cli.run("capture", "check", url_of(database), "--table", "orders") == ""
    told = cli.fail("capture", "check", url_of(database), "--table", "ordres")
    assert "The database lacks 1 thing" in told


def test_a_password_is_not_taken_and_the_way_to_give_it_is_told(cli: Cli, name: str) -> None:
    url = "postgresql://mill:secret@127.0.0.1/shop"
    told = cli.fail("capture", "add", name, url, "--table", "orders")
    assert "Name a variable of the environment instead" in told
    assert "secret" not in told


def test_a_variable_that_is_not_set_is_named(cli: Cli, name: str) -> None:
    url = "postgresql://mill:${NOT_SET_AT_ALL}@127.0.0.1/shop"
    cli.run("capture", "add", name, url, "--table", "orders", "--unchecked")
    assert "NOT_SET_AT_ALL" in cli.fail("capture", "run", name)
    cli.fail("capture", "check", name)


@pytest.mark.parametrize(
    ("url", "exit_code", "said"),
    [
        ("sqlite:////nowhere/shop.db", 75, "SQLite cannot use it now"),
        ("postgresql://mill@127.0.0.1:1/shop", 75, "refused"),
        ("mariadb://mill@127.0.0.1:1/shop", 75, "is away"),
        ("mariadb://mill@127.0.0.1:1/shop?server_id=x", 1, "server_id is none"),
        ("postgresql://mill@127.0.0.1:1/shop?colour=blue", 1, "colour"),
        ("postgresql://mill@[::1/shop", 1, "cannot be read"),
    ],
)
def test_a_database_that_cannot_be_asked_is_told_in_one_line(
    cli: Cli, url: str, exit_code: int, said: str
) -> None:
    assert said in cli.fail("capture", "check", url, "--table", "orders", exit_code=exit_code)


def test_a_table_that_is_not_there_is_not_added(cli: Cli, database: Path, name: str) -> None:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    assert "lacks 1 thing" in cli.fail("capture", "add", name, "--table", "nothing")
    assert (listed(cli, name) or {})["tables"] == ["orders"]


@pytest.mark.full
def test_a_paused_capture_writes_nothing_until_it_goes_on(
    cli: Cli, shop: App, running: Run, database: Path, name: str
) -> None:
    cli.run("capture", "pause", name)
    eventually(lambda: (listed(cli, name) or {})["state"] == "paused", what="a pause", within_s=60)
    write(database, "INSERT INTO orders VALUES (3, 'bread')")
    assert ("c", 3) not in changes(shop)
    cli.run("capture", "resume", name)
    eventually(lambda: ("c", 3) in changes(shop), what="the change", within_s=WITHIN_S)


@pytest.mark.full
def test_a_table_is_loaded_anew_when_it_is_asked_for(
    cli: Cli, shop: App, running: Run, name: str
) -> None:
    cli.run("capture", "reload", name, "orders")
    eventually(lambda: changes(shop).count(("r", 1)) == 2, what="a second load", within_s=WITHIN_S)
    assert "has no table" in cli.fail("capture", "reload", name, "nothing")


@pytest.mark.full
def test_a_capture_whose_process_is_killed_goes_on_where_it_was(
    cli: Cli, shop: App, running: Run, database: Path, name: str
) -> None:
    child = child_of(cli, name)
    assert child is not None
    write(database, "INSERT INTO orders VALUES (3, 'bread')")
    os.kill(child, signal.SIGKILL)
    write(database, "INSERT INTO orders VALUES (4, 'salt')")
    eventually(lambda: ("c", 4) in changes(shop), what="the change", within_s=WITHIN_S)
    found = changes(shop)
    assert sorted(found) == sorted(set(found)) == [("c", 3), ("c", 4), ("r", 1), ("r", 2)]
    _, told = running.end(signal.SIGINT)
    assert "died: again in" in told


@pytest.mark.full
def test_a_capture_ends_with_the_process_that_runs_it_also_when_that_is_killed(
    cli: Cli, running: Run, name: str
) -> None:
    child = child_of(cli, name)
    assert child is not None
    running.end(signal.SIGKILL)
    eventually(lambda: not is_there(child), what="the end of the child", within_s=WITHIN_S)


def test_a_capture_that_another_machine_added_is_run_when_it_was_approved_here(
    cli: Cli, shop: App, database: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    monkeypatch.setenv("MILLSTREAM_CAPTURES_APPROVED", str(tmp_path / "of_another.json"))
    assert f"millstream capture approve {name}" in cli.fail("capture", "run", name, "--once")
    assert (listed(cli, name) or {})["state"] == "failed"
    assert str(database) in cli.run("capture", "approve", name, "--yes")
    cli.run("capture", "run", name, "--once")
    assert changes(shop) == [("r", 1), ("r", 2)]


def test_a_capture_of_an_unknown_database_is_dropped_without_it(
    cli: Cli, database: Path, name: str
) -> None:
    cli.run("capture", "add", name, url_of(database), "--table", "orders")
    before = database.read_bytes()
    said = cli.said("capture", "drop", name, "--forget", "--yes")
    assert "What it made in the database stays there" in said
    assert listed(cli, name) is None
    assert database.read_bytes() == before


def test_another_database_of_a_capture_is_said(
    cli: Cli, database: Path, name: str, tmp_path: Path
) -> None:
    """The same relative path means another file in another directory."""
    other = tmp_path / "other.db"
    other.write_bytes(database.read_bytes())
    added = ("capture", "add", name, "--table", "orders")
    for _ in range(2):
        assert "its database was" not in cli.said(*added, url_of(database))
    assert f"its database was {url_of(database)}" in cli.said(*added, url_of(other))


def test_a_file_is_found_by_a_runner_in_another_directory(
    cli: Cli, shop: App, database: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(database.parent)
    said = cli.said("capture", "add", name, f"sqlite:///{database.name}", "--table", "orders")
    assert f"its database is kept as {url_of(database)}, wherever" in said
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cli.run("capture", "run", name, "--once")
    assert changes(shop) == [("r", 1), ("r", 2)]
