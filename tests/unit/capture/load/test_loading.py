"""Real threads over a scripted database: the shell around the course."""

import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.load.loading import Loading
from millstream.capture.load.plan import Phase
from millstream.capture.load.sweep import KeysOnDisk
from tests.support.load_runner import LoadRunner
from tests.support.scripted_source import (
    ScriptedChunk,
    ScriptedDatabase,
    ScriptedLoader,
    created,
    deleted,
    truncated,
    updated,
)


def runner_of(database: ScriptedDatabase, loader: ScriptedLoader | None = None) -> LoadRunner:
    return LoadRunner(database.open, position="0/0", loader=loader)


@pytest.fixture
def database() -> ScriptedDatabase:
    return ScriptedDatabase()


@pytest.fixture
def orders(database: ScriptedDatabase) -> CapturedTable:
    table = database.table("orders")
    database.put(table, *({"id": number} for number in range(1, 8)))
    return table


def test_all_rows_come_while_changes_stream(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    database.commit(updated(orders, {"id": 3, "item": "tea"}), deleted(orders, {"id": 5}))
    with runner.run() as loading:
        runner.until_done(loading)
        progress = loading.progress()
    assert runner.topics.rows() == database.rows[orders.name]
    assert [one.phase for one in progress.tables] == [Phase.DONE]
    assert progress.rows == 6
    assert progress.seconds_left == 0.0


def test_a_load_that_was_broken_off_goes_on_where_it_was(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until(lambda: bool(runner.topics.changes), loading)
    with runner.run() as loading:
        runner.until_done(loading)
    read = [change.key for change in runner.topics.changes if change.op == "r"]
    assert sorted(map(str, read)) == sorted(map(str, database.rows[orders.name]))  # each once


def test_a_loaded_table_is_not_read_again_by_the_next_run(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
    count = len(runner.topics.changes)
    with runner.run() as loading:
        assert loading.is_done
        runner.step(loading)
    assert len(runner.topics.changes) == count


def test_a_reload_deletes_what_is_not_there_any_more(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
        del database.rows[orders.name][b'{"id":4}']  # and no change tells of it
        loading.reload(orders.name)
        assert not loading.is_done
        runner.until_done(loading)
    assert runner.topics.rows() == database.rows[orders.name]
    assert runner.topics.changes[-1] == Change(orders, "d", b'{"id":4}', None, None)


def test_a_table_that_was_gone_at_the_start_is_loaded_when_it_is_made_again(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
    made_again = Transaction("0/9", "0/9", "9", 0, changes=(), reloads=(orders.name,))
    source = database.open()
    loading = Loading(
        source.loader(),
        runner.topics,
        tables=[],
        gone=[orders],
        states=runner.states,
        is_past=source.is_past,
    )
    with closing(source), closing(loading):
        assert loading.is_done
        assert list(loading.followed(made_again)) == []
        assert not loading.is_done


def test_a_truncate_deletes_every_key_that_was_written_before_it(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
        database.commit(truncated(orders), created(orders, {"id": 2}))
        runner.step(loading)
        runner.until_done(loading)
    assert list(runner.topics.rows()) == [b'{"id":2}']


def test_a_table_that_is_added_is_loaded_too(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
        customers = database.table("customers")
        database.put(customers, {"id": 70})
        loading.add([orders, customers])
        runner.until_done(loading)
    assert b'{"id":70}' in runner.topics.rows()
    assert len(runner.topics.rows()) == 8


def test_a_table_that_was_rewritten_is_loaded_anew(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
        database.rows[orders.name][b'{"id":1}'] = b'{"id":1,"item":"rewritten"}'
        database.commit(reloads=(orders.name,))
        runner.step(loading)
        runner.until_done(loading)
    assert runner.topics.rows() == database.rows[orders.name]


def test_a_table_without_a_key_is_a_truncate_and_its_rows(database: ScriptedDatabase) -> None:
    notes = database.table("notes", key=())
    database.rows[notes.name] = {b"1": b'{"note":"x"}', b"2": b'{"note":"x"}'}
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
    assert [change.op for change in runner.topics.changes] == ["t", "r", "r"]
    assert {change.key for change in runner.topics.changes} == {None}


class BrokenLoader(ScriptedLoader):
    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> ScriptedChunk:
        raise ConnectionError("the database is gone")


def test_what_goes_wrong_in_a_reader_is_raised_to_the_runner(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database, BrokenLoader(database))
    with runner.run() as loading, pytest.raises(ConnectionError, match="is gone"):
        runner.until_done(loading)


class SettlingLoader(ScriptedLoader):
    """Of a database whose standby is away, until somebody says so."""

    def __init__(self, database: ScriptedDatabase) -> None:
        super().__init__(database)
        self.is_settled = threading.Event()
        self.is_asked = threading.Event()
        self.reads_before = 0
        self.tables: list[str] = []

    def settle(self, is_over: Callable[[], bool]) -> None:
        self.is_asked.set()
        while not (is_over() or self.is_settled.wait(0.01)):
            pass

    def settle_table(self, table: CapturedTable, is_over: Callable[[], bool]) -> None:
        self.tables.append(table.name)

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> ScriptedChunk:
        self.reads_before += not self.is_settled.is_set()
        return super().read(table, after, until, rows_max)


def test_nothing_is_read_before_the_database_shows_what_former_runs_have_handed_over(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    loader = SettlingLoader(database)
    runner = runner_of(database, loader)
    with runner.run() as loading:
        runner.step(loading)
        assert loader.is_asked.wait(30)
        runner.step(loading)
        assert not loading.is_done
        loader.is_settled.set()
        runner.until_done(loading)
    assert loader.reads_before == 0
    assert {*loader.tables} == {orders.name}
    assert len(runner.topics.rows()) == 7


def test_a_loading_can_be_closed_while_the_database_does_not_come_to_rest(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    loader = SettlingLoader(database)
    runner = runner_of(database, loader)
    with runner.run() as loading:
        runner.step(loading)
        assert loader.is_asked.wait(30)
    assert not [one for one in threading.enumerate() if one.name.startswith("capture-load")]


def test_a_closed_loading_leaves_no_thread(
    database: ScriptedDatabase, orders: CapturedTable
) -> None:
    runner = runner_of(database)
    with runner.run() as loading:
        runner.until_done(loading)
        names = {thread.name for thread in threading.enumerate()}
        assert "capture-load-0" in names
    assert not [one for one in threading.enumerate() if one.name.startswith("capture-load")]


def test_keys_on_disk_are_a_set() -> None:
    with closing(KeysOnDisk()) as keys:
        keys.change([b"b", b"a", b"b", b"c"], [b"c"])
        keys.discard(b"nobody")
        assert keys.take(1) == [b"a"]
        assert keys.take(9) == [b"b"]
        assert keys.take(9) == []
