"""Views in Delta tables: the contract, and what only they have."""

import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.base.disk import RealDisk, RealFile
from millstream.base.ports import Fenced
from millstream.schemas.declaration import schema_of
from millstream.views.history import OutsideHistory
from millstream.views.store import Home, ViewStore
from millstream.views.stores.arrow_netting import netted_table
from millstream.views.stores.delta import store as delta_store
from millstream.views.stores.delta.store import (
    CHARACTERS_REFUSED,
    FILES_MAX,
    Delta,
    DeltaStore,
    DeltaWriter,
)
from millstream.views.stores.delta.table import DeltaFailed, added_files
from millstream.views.table_layout import BadView
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
from tests.support.odd_names import ODD_NAMES
from tests.support.s3_server import CREDENTIALS, s3_bucket


@pytest.fixture
def lake() -> Iterator[Path]:
    with memory_directory() as path:
        yield path / "lake"


def opened(lake: Path, *, key: list[str], view: str = "counts") -> DeltaStore:
    return Delta(lake).open(view, tuple(key), Home(app="shop", data=lake))


class DeltaContract(StoreContract):
    refuses_in_key: ClassVar[frozenset[str]] = frozenset({"ARRAY<DECIMAL(5, 2)>"})
    not_names: ClassVar[frozenset[str]] = frozenset(
        name for name in ODD_NAMES if CHARACTERS_REFUSED & {*name}
    )


class TestDelta(DeltaContract):
    @pytest.fixture
    def store(self, lake: Path) -> OpenStore:
        def open_store(*, key: list[str], view: str = "counts") -> DeltaStore:
            return opened(lake, key=key, view=view)

        return open_store


@pytest.fixture(scope="module")
def bucket() -> Iterator[Delta]:
    with s3_bucket("lake") as address:
        endpoint = parse_qs(urlsplit(address).query)["endpoint_override"][0]
        options = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": f"http://{endpoint}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }
        yield Delta("s3://lake/views", options)


@pytest.mark.full
class TestDeltaInABucket(DeltaContract):
    @pytest.fixture
    def store(self, bucket: Delta) -> OpenStore:
        """Nothing is ever removed from the bucket: each test has a place of its own."""
        place = Delta(f"{bucket.path}/{uuid4()}", bucket.options)

        def open_store(*, key: list[str], view: str = "counts") -> DeltaStore:
            return place.open(view, tuple(key), Home(app="shop", data=Path()))

        return open_store

    def test_claims_at_the_same_time_get_epochs_of_their_own(self, store: OpenStore) -> None:
        assert claims_at_the_same_time(store(key=["url"])) == [1, 2, 3, 4]


@pytest.fixture
def store(lake: Path) -> DeltaStore:
    return opened(lake, key=["url"])


@pytest.fixture
def writer(store: DeltaStore) -> DeltaWriter:
    """Has claimed epoch 1, and written batch 0."""
    writer = store.writer(1)
    writer.claim("counts", schema_of(COUNTS))
    writer.write(receipt(epoch=1, batch=0), rows(COUNTS, ("/", 1), ("/a", 1)))
    return writer


def table_of(lake: Path) -> DeltaTable:
    return DeltaTable(lake / "counts" / "current")


# --- who writes


def test_a_run_that_is_overtaken_between_its_look_and_its_commit_is_fenced(
    store: DeltaStore, writer: DeltaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, net = store.writer(1), netted_table

    def claim_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        newer.claim("counts", schema_of(COUNTS))
        newer.write(receipt(epoch=2, batch=1), rows(COUNTS, ("/", 2)))
        return net(*given)

    monkeypatch.setattr(delta_store, "netted_table", claim_meanwhile)
    with pytest.raises(Fenced, match="a newer run of it has started"):
        writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/b", 666)))
    assert store.reader().scan() == [{"url": "/", "count": 2}, {"url": "/a", "count": 1}]


def test_a_claim_of_another_generation_fences_a_batch_on_its_way(
    store: DeltaStore, writer: DeltaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, net = store.writer(2), netted_table

    def claim_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        newer.claim("counts", schema_of(COUNTS))
        return net(*given)

    monkeypatch.setattr(delta_store, "netted_table", claim_meanwhile)
    with pytest.raises(Fenced):
        writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/b", 666)))
    assert store.reader().count() == 2


def test_claims_at_the_same_time_get_epochs_of_their_own(store: DeltaStore) -> None:
    assert claims_at_the_same_time(store) == [1, 2, 3, 4]


def claims_at_the_same_time(store: ViewStore) -> list[int]:
    epochs: list[int] = []

    def claim() -> None:
        epochs.append(store.writer(1).claim("counts", schema_of(COUNTS)))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(epochs)


def test_a_claim_that_is_refused_fences_nobody(store: DeltaStore, writer: DeltaWriter) -> None:
    with pytest.raises(Exception, match="`count` was BIGINT and is STRING"):
        store.writer(1).claim("counts", schema_of("url STRING, count STRING"))
    assert writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))


# --- with other tools


def test_the_link_shows_other_tools_what_is_served(
    lake: Path, store: DeltaStore, writer: DeltaWriter
) -> None:
    assert table_of(lake).to_pyarrow_table().sort_by("url").to_pylist() == store.reader().scan()
    rebuilt = store.writer(2)
    rebuilt.claim("counts", schema_of("url STRING, n INT"))
    rebuilt.write(receipt(epoch=2, batch=0, query="b"), rows("url STRING, n INT", ("/", 7)))
    assert table_of(lake).to_pyarrow_table().num_rows == 2
    rebuilt.serve()
    assert table_of(lake).to_pyarrow_table().to_pylist() == [{"url": "/", "n": 7}]
    store.serve(1)
    assert table_of(lake).to_pyarrow_table().num_rows == 2


def test_a_commit_of_another_tool_loses_no_receipt(
    lake: Path, store: DeltaStore, writer: DeltaWriter
) -> None:
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/b", 1)))
    for _ in range(3):
        table_of(lake).alter.set_table_properties({"delta.appendOnly": "false"})
    assert store.reader().position() == {"clicks": {0: 10, 1: 1}}
    assert not writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/b", 666)))
    assert writer.write(receipt(epoch=1, batch=2), changes(("/", None, "delete")))
    assert [row["url"] for row in store.reader().scan()] == ["/a", "/b"]


def test_a_table_of_somebody_else_is_told(lake: Path, store: DeltaStore) -> None:
    DeltaTable.create(lake / "counts" / "_view", pa.schema([("id", pa.int64())]))
    with pytest.raises(DeltaFailed, match="no commit has a note of Millstream"):
        store.writer(1).claim("counts", schema_of(COUNTS))


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b"])
def test_a_name_that_delta_refuses_is_told_before_anything_is_written(
    store: DeltaStore, name: str
) -> None:
    with pytest.raises(BadView, match=r"cannot be a column of a Delta table.*rename it"):
        store.writer(1).claim("counts", schema_of(f"url STRING, `{name}` INT"))
    assert store.generations() == []


# --- batches


def test_keys_that_are_not_there_can_be_all_that_a_batch_takes_away(
    store: DeltaStore, writer: DeltaWriter
) -> None:
    assert writer.write(receipt(epoch=1, batch=1), changes(("/nowhere", None, "delete")))
    assert store.reader().position() == {"clicks": {0: 10, 1: 1}}
    assert store.reader().count() == 2


def test_many_small_batches_do_not_leave_many_files(
    lake: Path, store: DeltaStore, writer: DeltaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_store, "FILES_MAX", 5)
    for batch in range(1, 20):
        writer.write(receipt(epoch=1, batch=batch), rows(COUNTS, (f"/{batch:03}", batch)))
        assert len(table_of(lake).file_uris()) <= 5 < FILES_MAX
    assert store.reader().count() == 21
    assert not writer.write(receipt(epoch=1, batch=19), rows(COUNTS, ("/", 666)))
    assert store.reader().position() == {"clicks": {0: 10, 1: 19}}


# --- large batches, in parts


def staged(writer: DeltaWriter, batch: int, *parts: pa.Table) -> list[Any]:
    """The facts of the parts, as from other processes."""
    staging = pickle.loads(pickle.dumps(writer.staging(receipt(epoch=1, batch=batch))))
    facts = [staging.stage(number, iter(one.to_batches())) for number, one in enumerate(parts)]
    found: list[Any] = pickle.loads(pickle.dumps(facts))
    return found


def test_parts_become_one_batch(lake: Path, store: DeltaStore, writer: DeltaWriter) -> None:
    facts = staged(
        writer,
        1,
        changes(("/", None, "delete"), ("/b", 1, "upsert"), ("/b", 2, "upsert")),
        changes(),
        changes(("/a", 5, "upsert"), ("/nowhere", None, "delete")),
    )
    before = table_of(lake).version()
    assert store.reader().count() == 2
    assert writer.commit(receipt(epoch=1, batch=1), facts)
    assert table_of(lake).version() == before + 1
    assert store.reader().scan() == [{"url": "/a", "count": 5}, {"url": "/b", "count": 2}]
    assert store.reader().position() == {"clicks": {0: 10, 1: 1}}
    assert not writer.commit(receipt(epoch=1, batch=1), facts)
    assert not (lake / "counts" / "current" / "_staged").exists()


def test_parts_of_a_first_batch_take_the_place_of_all(
    store: DeltaStore, writer: DeltaWriter
) -> None:
    first = receipt(epoch=1, batch=0, query="b")
    parts = changes(("/x", 1, "upsert"), ("/a", None, "delete")), changes(("/y", 1, "upsert"))
    assert writer.commit(first, staged(writer, 0, *parts))
    assert [row["url"] for row in store.reader().scan()] == ["/x", "/y"]
    assert writer.commit(receipt(epoch=1, batch=0, query="c"), staged(writer, 0, changes()))
    assert store.reader().scan() == []


def test_parts_with_keys_that_are_null_in_part_find_their_rows(lake: Path) -> None:
    ddl = "a INT, b INT, n INT, _change STRING"
    store = opened(lake, key=["a", "b"], view="pairs")
    writer = store.writer(1)
    writer.claim("counts", schema_of(ddl))
    table = rows(ddl, (1, None, 1, "upsert"), (1, 2, 1, "upsert"), (None, 2, 1, "upsert"))
    writer.write(receipt(epoch=1, batch=0), table)
    parts = rows(ddl, (1, None, 2, "upsert")), rows(ddl, (None, 2, None, "delete"))
    writer.commit(receipt(epoch=1, batch=1), staged(writer, 1, *parts))
    found = {(row["a"], row["b"]): row["n"] for row in store.reader().scan()}
    assert found == {(1, None): 2, (1, 2): 1}


def test_what_a_killed_run_has_staged_goes_with_the_next_claim(
    lake: Path, store: DeltaStore, writer: DeltaWriter
) -> None:
    facts = staged(writer, 1, rows(COUNTS, ("/b", 1)))
    assert (lake / "counts" / "current" / "_staged").exists()
    store.writer(1).claim("counts", schema_of(COUNTS))
    assert not (lake / "counts" / "current" / "_staged").exists()
    with pytest.raises(Fenced):
        writer.commit(receipt(epoch=1, batch=1), facts)


# --- power cuts


def last_commit(lake: Path) -> Path:
    return max((lake / "counts" / "current" / "_delta_log").glob("*.json"))


def last_file(lake: Path) -> Path:
    table = lake / "counts" / "current"
    (found,) = added_files(last_commit(lake), table)
    return found


def test_a_batch_is_synced_before_it_counts(
    lake: Path, writer: DeltaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta leaves that to the system."""
    files: list[str] = []
    names: list[str] = []
    monkeypatch.setattr(RealFile, "sync", lambda file: files.append(file.path.name))
    monkeypatch.setattr(RealDisk, "sync_directory", lambda _, path: names.append(path.name))
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))
    assert files == [last_file(lake).name, last_commit(lake).name]
    assert names == ["_delta_log", "generation-1-1", "counts"]


@pytest.mark.parametrize("find", [last_commit, last_file])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_commit_that_a_power_cut_has_torn_is_taken_back_and_written_again(
    lake: Path, store: DeltaStore, writer: DeltaWriter, find: Any, kept: float
) -> None:
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))
    torn = find(lake)
    torn.write_bytes(torn.read_bytes()[: int(torn.stat().st_size * kept)])
    again = store.writer(1)
    assert again.claim("counts", schema_of(COUNTS)) == 2
    assert store.reader().scan() == [{"url": "/", "count": 1}, {"url": "/a", "count": 1}]
    assert again.write(receipt(epoch=2, batch=1), rows(COUNTS, ("/", 2)))
    assert row_of(store.reader(), "/") == {"url": "/", "count": 2}


def test_zeros_where_bytes_were_are_found(
    lake: Path, store: DeltaStore, writer: DeltaWriter
) -> None:
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))
    torn = last_file(lake)
    content = torn.read_bytes()
    torn.write_bytes(bytes(len(content) // 2) + content[len(content) // 2 :])
    store.writer(1).claim("counts", schema_of(COUNTS))
    assert row_of(store.reader(), "/") == {"url": "/", "count": 1}


def test_the_first_commit_may_be_the_torn_one(lake: Path, store: DeltaStore) -> None:
    store.writer(1).claim("counts", schema_of(COUNTS))
    last_commit(lake).write_bytes(b"")
    assert store.writer(1).claim("counts", schema_of(COUNTS)) == 2
    assert store.reader().scan() == []


# --- the past


def test_a_former_version_can_be_read(lake: Path, store: DeltaStore, writer: DeltaWriter) -> None:
    version = table_of(lake).version()
    writer.write(receipt(epoch=1, batch=1), changes(("/", None, "delete"), ("/c", 3, "upsert")))
    past = store.reader().as_of(version=version)
    assert past.scan() == [{"url": "/", "count": 1}, {"url": "/a", "count": 1}]
    assert past.position() == {"clicks": {0: 10, 1: 0}}
    assert row_of(store.reader().as_of(version=version + 1), "/c") == {"url": "/c", "count": 3}
    with pytest.raises(OutsideHistory, match="as of version 99: kept is version 0"):
        store.reader().as_of(version=99)


def test_a_former_time_can_be_read(lake: Path, store: DeltaStore, writer: DeltaWriter) -> None:
    written = datetime.fromtimestamp(table_of(lake).history(1)[0]["timestamp"] / 1000, UTC)
    while datetime.now(UTC) - written < timedelta(milliseconds=5):
        pass
    writer.write(receipt(epoch=1, batch=1), rows(COUNTS, ("/", 2)))
    past = store.reader().as_of(time=written + timedelta(milliseconds=2))
    assert row_of(past, "/") == {"url": "/", "count": 1}
    with pytest.raises(OutsideHistory, match="kept is version 0"):
        store.reader().as_of(time=written - timedelta(days=1))
