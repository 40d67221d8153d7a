"""What only a SQLite file can be: foreign, damaged, full, read by others while it is written."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.base.disk import DiskFull
from millstream.schemas.declaration import schema_of
from millstream.views.receipts import ClaimLost, RowsLost
from millstream.views.store import BadQuestion, ViewNotFound
from millstream.views.stores.sqlite import reader as sqlite_reader
from millstream.views.stores.sqlite.copy import copy_view
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.views.stores.sqlite.reader import ViewReader, open_for_reading
from millstream.views.stores.sqlite.store import NotAView, SqliteView, ViewDamaged, open_for_writing
from millstream.views.table_layout import BadView
from tests.contracts.view_store_contract import COUNTS, receipt, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "views" / "counts.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteView]:
    store = SqliteView(path, view="counts", key=["url"])
    yield store
    store.close()


@pytest.fixture
def written(store: SqliteView) -> SqliteView:
    """A view with three rows."""
    epoch = store.claim("counts", schema_of(COUNTS))
    store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 3), ("/a", 1), ("/b", None)))
    return store


@pytest.fixture
def reader(path: Path) -> Iterator[ViewReader]:
    with ViewReader(path, view="counts") as reader:
        yield reader


def execute(path: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db, db:
        return [db.execute(statement).fetchall() for statement in statements][-1]


def test_any_tool_can_read_the_rows(written: SqliteView, path: Path) -> None:
    assert execute(path, "SELECT url, count FROM rows ORDER BY url") == [
        ("/", 3),
        ("/a", 1),
        ("/b", None),
    ]


def test_a_commit_is_synced(written: SqliteView) -> None:
    assert written._db is not None
    assert written._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert written._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_view_that_was_never_written_is_not_there(reader: ViewReader, path: Path) -> None:
    with pytest.raises(ViewNotFound, match="view counts is not there yet"):
        reader.get("/")
    assert not path.exists()


def test_a_view_that_is_not_claimed_yet_is_not_there(
    store: SqliteView, reader: ViewReader, path: Path
) -> None:
    """A job opens the file, then claims it: a reader may come in between."""
    open_for_writing(path).close()
    with pytest.raises(ViewNotFound, match="view counts is not there yet"):
        reader.get("/")
    store.claim("counts", schema_of(COUNTS))
    assert reader.get("/") is None


def test_a_reader_that_comes_while_a_view_is_made_finds_it_or_does_not(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.sqlite"
        making = threading.Thread(target=claimed, args=(path,))
        making.start()
        with ViewReader(path, view="counts") as reader:
            while making.is_alive():
                with contextlib.suppress(ViewNotFound):
                    assert reader.scan() == []
            assert reader.scan() == []


def claimed(path: Path) -> None:
    store = SqliteView(path, view="counts", key=["url"])
    store.claim("counts", schema_of(COUNTS))
    store.close()


def test_a_view_is_empty_before_its_first_batch(store: SqliteView, reader: ViewReader) -> None:
    store.claim("counts", schema_of(COUNTS))
    assert reader.scan() == []
    assert reader.position() == {}


def test_a_reader_sees_whole_batches_only(written: SqliteView, reader: ViewReader) -> None:
    seen = []

    def look(statement: str) -> None:
        seen.append(tuple(reader.scan(order_by="url")))

    assert written._db is not None
    before = tuple(reader.scan(order_by="url"))
    written._db.set_trace_callback(look)  # before each statement of the batch
    changes = rows(COUNTS, ("/", 4), ("/a", 2), ("/new", 1))
    assert written.write(receipt(epoch=1, batch=1), changes)
    assert set(map(str, seen)) == {str(before)}
    assert len(seen) > 5
    assert reader.count() == 4


def test_a_full_disk_keeps_what_was_there(written: SqliteView, reader: ViewReader) -> None:
    assert written._db is not None
    ((pages,),) = written._db.execute("PRAGMA page_count")
    written._db.execute(f"PRAGMA max_page_count = {pages}")
    many = rows(COUNTS, *((f"/{'x' * 100}{number}", number) for number in range(1000)))
    with pytest.raises(DiskFull, match=r"counts\.sqlite: no space left"):
        written.write(receipt(epoch=1, batch=1), many)
    assert len(reader.scan()) == 3
    written._db.execute("PRAGMA max_page_count = 1000000")
    assert written.write(receipt(epoch=1, batch=1), many)
    assert reader.count() == 1003


def test_a_job_does_not_write_into_a_file_that_was_removed_under_it(
    written: SqliteView, reader: ViewReader, path: Path
) -> None:
    SqliteStore(path, view="counts", key=["url"]).drop()
    with pytest.raises(RowsLost, match=r"goes on with batch 1, but .* holds nothing"):
        written.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 4)))
    with pytest.raises(ClaimLost, match="Run the job again"):
        written.serve()
    assert not path.exists()
    epoch = written.claim("counts", schema_of(COUNTS))
    assert written.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 1)))
    assert reader.scan() == [{"url": "/", "count": 1}]


def test_a_job_does_not_write_beside_a_file_that_was_put_in_the_place_of_its_own(
    written: SqliteView, path: Path, tmp_path: Path
) -> None:
    copy_view(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    with pytest.raises(RowsLost, match="goes on with batch 1"):
        written.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 4)))
    assert execute(path, "SELECT count FROM rows WHERE url = '/'") == [(3,)]


def test_a_view_is_gone_as_soon_as_it_is_being_dropped(
    written: SqliteView, reader: ViewReader, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reader.count() == 3
    store = SqliteStore(path, view="counts", key=["url"])
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
    store.drop()
    with pytest.raises(ViewNotFound, match="is not there yet"):
        reader.scan()
    assert store.generations() == []


def test_a_file_that_is_removed_while_it_is_opened_is_not_there(
    written: SqliteView, reader: ViewReader, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_too_late(path: Path) -> sqlite3.Connection:
        path.unlink(missing_ok=True)
        return open_for_reading(path)

    monkeypatch.setattr(sqlite_reader, "open_for_reading", open_too_late)
    with pytest.raises(ViewNotFound, match="is not there yet"):
        reader.scan()


def test_a_dropped_table_is_told(written: SqliteView, reader: ViewReader, path: Path) -> None:
    execute(path, "DROP VIEW rows", "DROP TABLE rows_1")
    with pytest.raises(ViewDamaged, match=r"no such table: rows_1\). Rebuild the view"):
        written.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 1)))
    with pytest.raises(ViewDamaged, match="Rebuild the view"):
        reader.scan()


def test_the_database_of_somebody_else_is_left_alone(store: SqliteView, path: Path) -> None:
    path.parent.mkdir()
    execute(path, "CREATE TABLE rows_1 (a)", "INSERT INTO rows_1 VALUES (1)")
    with pytest.raises(NotAView, match="not a view of Millstream; nothing was changed in it"):
        store.claim("counts", schema_of(COUNTS))
    assert execute(path, "SELECT * FROM rows_1") == [(1,)]


def test_a_newer_format_is_left_alone(written: SqliteView, path: Path) -> None:
    written.close()
    execute(path, "PRAGMA user_version = 3")
    with pytest.raises(NotAView, match="has format 3, this version reads up to 2"):
        written.claim("counts", schema_of(COUNTS))


def test_a_file_that_is_no_database_is_left_alone(store: SqliteView, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(NotAView, match="not a SQLite database"):
        store.claim("counts", schema_of(COUNTS))
    assert path.read_bytes() == b"no database" * 1000


@pytest.mark.parametrize(
    ("ddl", "key", "message"),
    [
        (COUNTS, [], "has no key"),
        (COUNTS, ["user"], r"the key user is none of its columns \(url, count\)"),
        ("m MAP<STRING, INT>, a INT", ["m"], "the key m is or has a map"),
        ("`a.b` INT, a STRUCT<b: INT>", ["a"], r"two columns are named a\.b: rename one"),
        ("_change STRING", ["x"], "has no columns of its own"),
    ],
)
def test_a_view_that_cannot_be_kept_is_refused(
    path: Path, ddl: str, key: list[str], message: str
) -> None:
    with pytest.raises(BadView, match=message):
        SqliteView(path, view="counts", key=key).claim("counts", schema_of(ddl))
    assert not path.exists()


# --- scans


@pytest.mark.parametrize(
    ("where", "urls"),
    [
        ({}, ["/", "/a", "/b"]),
        ({"url": "/a"}, ["/a"]),
        ({"url !=": "/a"}, ["/", "/b"]),
        ({"count >": 1}, ["/"]),
        ({"count >=": 1, "url >": "/"}, ["/a"]),
        ({"count <": 3}, ["/a"]),
        ({"count <=": 3}, ["/", "/a"]),
        ({"count": None}, ["/b"]),
        ({"count !=": None}, ["/", "/a"]),
        ({"url": "' OR 1=1 --"}, []),
    ],
)
def test_a_scan_finds_rows_that_meet_all_conditions(
    written: SqliteView, reader: ViewReader, where: dict[str, Any], urls: list[str]
) -> None:
    assert [row["url"] for row in reader.scan(where=where)] == urls


def test_a_scan_is_ordered_and_limited(written: SqliteView, reader: ViewReader) -> None:
    assert [row["url"] for row in reader.scan(order_by="-url", limit=2)] == ["/b", "/a"]
    assert [row["count"] for row in reader.scan(order_by=["count"])] == [1, 3, None]
    assert reader.scan(limit=0) == []


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"where": {'url" OR 1=1 --': 1}}, "has no column"),
        ({"where": {"user": 1}}, "view counts has no column user to compare: url, count"),
        ({"order_by": "url DESC; DROP TABLE rows_1"}, "has no column"),
        ({"where": {"count": "many"}}, "`count`: expected BIGINT, found 'many'"),
        ({"where": {"count >": None}}, "is never true"),
    ],
)
def test_a_bad_question_says_what_it_could_ask(
    written: SqliteView, reader: ViewReader, question: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadQuestion, match=message):
        reader.scan(**question)


def test_a_key_that_does_not_fit_is_told(written: SqliteView, reader: ViewReader) -> None:
    with pytest.raises(BadQuestion, match="the key's field `url`: expected STRING, found 7"):
        reader.get(7)
    with pytest.raises(BadQuestion, match="view counts is read by url: 1 values, not 2"):
        reader.get("/", 7)


def test_decimals_and_times_are_compared_by_value(path: Path) -> None:
    ddl = "price DECIMAL(10, 2), at TIMESTAMP"
    store = SqliteView(path, view="counts", key=["price"])
    epoch = store.claim("counts", schema_of(ddl))
    prices = [Decimal("9.50"), Decimal("-1.00"), Decimal("10.00"), Decimal("0.00")]
    found = [(price, datetime(2026, 1, day, tzinfo=UTC)) for day, price in enumerate(prices, 1)]
    store.write(receipt(epoch=epoch, batch=0), rows(ddl, *found))
    with ViewReader(path, view="counts") as reader:
        assert [row["price"] for row in reader.scan()] == sorted(prices)
        assert [row["price"] for row in reader.scan(where={"price >": 0})] == [
            Decimal("9.50"),
            Decimal("10.00"),
        ]
        assert [row["price"] for row in reader.scan(order_by="-at", limit=1)] == [Decimal("0.00")]
        assert reader.get(Decimal("9.5")) == {"price": prices[0], "at": found[0][1]}
    store.close()


def test_a_damaged_file_cannot_be_dropped_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "counts.sqlite"
    path.write_bytes(b"\xff" * 4_096)
    with pytest.raises(NotAView, match="or damaged; remove it and build it again"):
        SqliteStore(path, view="counts", key=("word",)).drop()
