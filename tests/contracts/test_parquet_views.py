"""Views in Parquet files: the contract, and what only they have."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.store import Home
from millstream.views.stores import view_lock
from millstream.views.stores.parquet import merge as parquet_merge
from millstream.views.stores.parquet.manifest import ManifestDamaged
from millstream.views.stores.parquet.store import (
    DROPPED_KEPT_MS,
    Parquet,
    ParquetStore,
    ParquetWriter,
)
from millstream.views.stores.view_lock import ViewLocked, locked
from tests.contracts.view_store_contract import (
    COUNTS,
    OpenStore,
    StoreContract,
    changes,
    receipt,
    row_of,
    rows,
)
from tests.support.memory_directory import memory_directory


@pytest.fixture
def lake() -> Iterator[Path]:
    with memory_directory() as path:
        yield path / "lake"


class TestParquet(StoreContract):
    @pytest.fixture
    def store(self, lake: Path) -> OpenStore:
        def open_store(*, key: list[str], view: str = "counts") -> ParquetStore:
            return Parquet(lake).open(view, tuple(key), Home(app="shop", data=lake))

        return open_store


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def store(lake: Path, clock: Hands) -> ParquetStore:
    return ParquetStore(lake / "counts", view="counts", key=("url",), clock=clock)


@pytest.fixture
def writer(store: ParquetStore) -> ParquetWriter:
    """Has claimed epoch 1, and written batch 0."""
    writer = store.writer(1)
    writer.claim("counts", schema_of(COUNTS))
    writer.write(receipt(epoch=1, batch=0), rows(COUNTS, ("/a", 1), ("/b", 1)))
    return writer


def files(lake: Path) -> list[str]:
    """Those of the served generation, as its manifest names them."""
    found: list[str] = json.loads((lake / "counts" / "manifest.json").read_text())["files"]
    return found


def on_disk(lake: Path) -> int:
    return len(list((lake / "counts").glob("*/*.parquet")))


# --- with other tools


def test_the_files_of_the_manifest_are_the_rows(
    lake: Path, store: ParquetStore, writer: ParquetWriter
) -> None:
    writer.write(receipt(epoch=1, batch=1), changes(("/a", None, "delete"), ("/c", 3, "upsert")))
    found = [
        row for name in files(lake) for row in pq.read_table(lake / "counts" / name).to_pylist()
    ]
    assert sorted(found, key=lambda row: str(row["url"])) == store.reader().scan()


def test_duckdb_reads_the_files_of_the_manifest(lake: Path, writer: ParquetWriter) -> None:
    """As docs/formats/parquet_views.md says."""
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/c", 3)))
    with duckdb.connect() as db:
        db.execute(
            "SET VARIABLE files = (SELECT list_transform(files, lambda f: $place || '/' || f) "
            "FROM read_json($place || '/manifest.json'))",
            {"place": str(lake / "counts")},
        )
        found = db.execute(
            "SELECT url, count FROM read_parquet(getvariable('files')) ORDER BY url"
        ).fetchall()
    assert found == [("/a", 1), ("/b", 1), ("/c", 3)]


# --- files


def test_a_batch_leaves_files_alone_that_it_does_not_touch(
    lake: Path, writer: ParquetWriter
) -> None:
    (first,) = files(lake)
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/x", 1), ("/z", 1)))
    assert files(lake)[0] == first
    writer.write(receipt(epoch=1, batch=2), rows(COUNTS, ("/y", 1)))
    assert len(files(lake)) == 3
    writer.write(receipt(epoch=1, batch=3), rows(COUNTS, ("/z", 2)))
    assert files(lake)[0] == first
    assert len(files(lake)) == 3


def test_small_files_become_one(lake: Path, store: ParquetStore, writer: ParquetWriter) -> None:
    for batch in range(1, 40):
        writer.write(receipt(epoch=1, batch=batch), rows(COUNTS, (f"/{batch:03}", batch)))
        assert len(files(lake)) <= parquet_merge.SMALL_FILES_MAX
    assert store.reader().count() == 41


def test_a_file_has_a_limit(
    lake: Path, store: ParquetStore, writer: ParquetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_merge, "FILE_ROWS_MAX", 10)
    monkeypatch.setattr(parquet_merge, "SMALL_ROWS", 1)
    table = rows(COUNTS, *((f"/n/{n:02}", n) for n in range(31)))
    writer.write(receipt(epoch=1, batch=1), table)
    sizes = [pq.read_metadata(lake / "counts" / name).num_rows for name in files(lake)]
    assert sizes == [2, 10, 10, 10, 1]
    writer.write(receipt(epoch=1, batch=2), rows(COUNTS, ("/n/15", -1)))
    assert store.reader().count() == 33
    assert row_of(store.reader(), "/n/15") == {"url": "/n/15", "count": -1}


def test_files_that_were_replaced_are_kept_for_readers_for_a_while(
    lake: Path, clock: Hands, writer: ParquetWriter
) -> None:
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/a", 2)))
    assert on_disk(lake) == 2
    clock.now_ms += DROPPED_KEPT_MS
    writer.write(receipt(epoch=1, batch=2), rows(COUNTS))
    assert on_disk(lake) == 2
    clock.now_ms += 1
    writer.write(receipt(epoch=1, batch=3), rows(COUNTS))
    assert on_disk(lake) == 1


def test_a_reader_whose_files_went_meanwhile_looks_again(
    lake: Path, store: ParquetStore, writer: ParquetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = store.reader()
    stale = store._files.manifest()
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/a", 2)))
    (gone,) = stale.generations[1].files
    (lake / "counts" / gone.name).unlink()
    looks = iter([stale])
    fresh = store._files.manifest
    monkeypatch.setattr(store._files, "manifest", lambda: next(looks, None) or fresh())
    assert row_of(reader, "/a") == {"url": "/a", "count": 2}


def test_what_a_killed_run_left_is_removed_by_the_next(
    lake: Path, store: ParquetStore, writer: ParquetWriter
) -> None:
    (lake / "counts" / "generation-1-1" / "rows-77.parquet").write_bytes(b"half")
    (lake / "counts" / "generation-9-9").mkdir()
    store.writer(1).claim("counts", schema_of(COUNTS))
    assert on_disk(lake) == 1
    assert not (lake / "counts" / "generation-9-9").exists()


def test_a_view_that_is_dropped_leaves_no_files(
    lake: Path, store: ParquetStore, writer: ParquetWriter
) -> None:
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/a", 2)))
    store.drop()
    assert on_disk(lake) == 0


# --- bad luck


def test_a_writer_waits_for_the_lock_and_gives_up(
    lake: Path, writer: ParquetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_lock, "BUSY_SECONDS_MAX", 0.0)
    with locked(lake / "counts"), pytest.raises(ViewLocked, match="another process has been"):
        writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/a", 2)))
    assert writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/a", 2)))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": 99}', b"\xff"])
def test_a_manifest_that_is_none_is_told(
    lake: Path, store: ParquetStore, writer: ParquetWriter, content: bytes
) -> None:
    (lake / "counts" / "manifest.json").write_bytes(content)
    with pytest.raises(ManifestDamaged, match="not the manifest of a view"):
        store.reader().scan()
    with pytest.raises(ManifestDamaged):
        writer.write(receipt(epoch=1, batch=1), rows(COUNTS))


def test_a_damaged_file_is_told_with_its_name(
    lake: Path, store: ParquetStore, writer: ParquetWriter
) -> None:
    (name,) = files(lake)
    (lake / "counts" / name).write_bytes(b"PAR1 no more")
    with pytest.raises(ManifestDamaged, match=name):
        store.reader().scan()
