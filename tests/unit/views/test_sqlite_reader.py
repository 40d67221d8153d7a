"""What only a reader of a file meets: a file that goes and comes, and threads that ask at once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.store import ViewNotFound
from millstream.views.stores.sqlite.reader import IDLE_MAX, ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from tests.contracts.view_store_contract import COUNTS, receipt, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counts.sqlite"


@pytest.fixture
def reader(path: Path) -> Iterator[ViewReader]:
    with ViewReader(path, view="counts") as reader:
        yield reader


def written(path: Path, count: int) -> SqliteView:
    store = SqliteView(path, view="counts", key=["url"])
    epoch = store.claim("counts", schema_of(COUNTS))
    store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", count)))
    return store


def remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def test_a_file_that_is_made_anew_is_read_anew(path: Path, reader: ViewReader) -> None:
    written(path, 1).close()
    assert reader.get("/") == {"url": "/", "count": 1}
    remove(path)
    with pytest.raises(ViewNotFound):
        reader.get("/")
    store = written(path, 2)
    assert reader.get("/") == {"url": "/", "count": 2}
    store.close()


def test_a_reader_of_a_removed_file_does_no_harm_to_the_new_one(
    path: Path, reader: ViewReader
) -> None:
    """SQLite's journals are found by name: an old connection must not touch those of the new."""
    old = written(path, 1)
    assert reader.get("/") == {"url": "/", "count": 1}
    remove(path)
    new = written(path, 2)
    old.close()
    assert reader.get("/") == {"url": "/", "count": 2}
    new.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 3)))
    new.close()
    assert reader.get("/") == {"url": "/", "count": 3}


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"text >": ""}, [2]),
        ({"text >=": ""}, [1, 2]),
        ({"text starts with": ""}, [1, 2]),
        ({"blob <": b"z"}, [1, 3]),
        ({"text": None}, [3]),
        ({"text in": [None, "b"]}, [2, 3]),
    ],
)
def test_a_null_in_a_key_compares_with_nothing(
    path: Path, where: dict[str, Any], ids: list[int]
) -> None:
    """In a key it is kept as a value, which SQLite would compare."""
    ddl = "id INT, text STRING, blob BINARY"
    store = SqliteView(path, view="counts", key=["id", "text", "blob"])
    epoch = store.claim("counts", schema_of(ddl))
    store.write(
        receipt(epoch=epoch, batch=0), rows(ddl, (1, "", b""), (2, "b", None), (3, None, b"c"))
    )
    store.close()
    with ViewReader(path, view="counts") as reader:
        assert [row["id"] for row in reader.scan(where=where)] == ids


def test_what_is_read_in_one_moment_belongs_together(path: Path, reader: ViewReader) -> None:
    store = written(path, 1)
    with reader.moment() as now:
        assert now.position() == {"clicks": {0: 10, 1: 0}}
        store.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))
        assert now.scan() == [{"url": "/", "count": 1}]
        assert now.position() == {"clicks": {0: 10, 1: 0}}
        assert reader.scan() == [{"url": "/", "count": 2}]
    store.close()


def test_threads_do_not_wait_for_one_another(path: Path, reader: ViewReader) -> None:
    """All are inside at once: a barrier lets none through before all have come."""
    store = written(path, 1)
    asking = 2 * IDLE_MAX
    inside = threading.Barrier(asking)

    def ask(_: int) -> int:
        with reader.moment() as now:
            inside.wait(timeout=30)
            return now.count()

    with ThreadPoolExecutor(asking) as threads:
        assert list(threads.map(ask, range(asking))) == [1] * asking
    assert len(reader._idle) == IDLE_MAX
    store.close()


def test_a_closed_reader_has_nothing_open(path: Path, reader: ViewReader) -> None:
    written(path, 1).close()
    reader.count()
    reader.close()
    assert reader._idle == []
    assert not path.with_name(f"{path.name}-wal").exists()
