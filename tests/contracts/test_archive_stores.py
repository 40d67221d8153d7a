"""What an archive asks of the place it is in: one suite, a directory and object stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.archive.plan import GapBeforeArchive
from millstream.archive.stores import DiskStore, Store, StoreFailed, open_store
from millstream.archive.topic_archive import TopicArchive
from millstream.base.disk import RealDisk
from tests.support.archived_topic import (
    ArchivableTopic,
    numbered_records,
    read_archive,
    run_archive,
)
from tests.support.s3_server import CREDENTIALS, s3_bucket
from tests.support.unlocked_store import UnlockedStore

LARGE = b"\x07" * (12 << 20)  # more than one part of an upload


class StoreContract:
    """Subclasses only say how to make an empty store."""

    def test_what_is_written_is_kept_until_it_is_removed(self, store: Store) -> None:
        assert store.read("a/b/c.txt") is None
        assert store.names("a") == []
        store.write("a/b/c.txt", b"1")
        store.write("a/b/c.txt", b"2")
        store.write("a/b/a.txt", b"")
        assert store.read("a/b/c.txt") == b"2"
        assert (store.names(""), store.names("a")) == (["a"], ["b"])
        assert store.names("a/b") == ["a.txt", "c.txt"]
        store.remove("a/b/c.txt")
        store.remove("a/b/c.txt")
        assert store.names("a/b") == ["a.txt"]

    def test_a_large_file_is_whole(self, store: Store) -> None:
        store.write("topic=a/x", LARGE)
        assert store.read("topic=a/x") == LARGE

    def test_runs_add_up(self, store: Store) -> None:
        topic = ArchivableTopic({0: numbered_records(3)})
        assert [run.waiting for run in run_archive(store, topic, with_tail=False)] == [3]
        topic.partitions[0] = numbered_records(10)
        (run,) = run_archive(store, topic, with_tail=False)
        assert ([len(file.offsets) for file in run.files], run.waiting) == ([4, 4], 2)
        run_archive(store, topic)
        assert run_archive(store, topic) == []
        assert read_archive(store) == topic.partitions

    def test_a_gap_is_refused_until_it_is_allowed_and_then_noted(self, store: Store) -> None:
        topic = ArchivableTopic({0: numbered_records(4)})
        run_archive(store, topic)
        topic.partitions, topic.starts = {0: numbered_records(12)}, {0: 7}
        with pytest.raises(GapBeforeArchive):
            run_archive(store, topic)
        run_archive(store, topic, allow_gaps=True)
        found = read_archive(store)[0]
        assert [one.offset for one in found] == [0, 1, 2, 3, 7, 8, 9, 10, 11]
        archive = TopicArchive(store, "orders")
        assert [str(gap) for gap in archive.manifest.partitions[0].gaps] == ["[4, 7)"]

    def test_an_upload_that_broke_off_is_written_again(self, store: Store) -> None:
        topic = ArchivableTopic({0: numbered_records(4)})
        run_archive(store, topic)
        topic.partitions[0] += numbered_records(4, start=4)
        store.write(
            f"topic=orders/partition=0/{4:020}-{8:020}-{0:016x}.parquet", b"PAR1 half of it"
        )
        run_archive(store, topic)
        assert read_archive(store) == topic.partitions


class TestDirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return DiskStore(RealDisk(), tmp_path)


class TestObjectStoreInADirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return UnlockedStore(tmp_path)


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    with s3_bucket("contracts") as address:
        yield address


@pytest.mark.full
class TestS3(StoreContract):
    """Its protocol, served on loopback."""

    @pytest.fixture
    def store(
        self, bucket: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Store:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        return open_store(bucket % request.node.name)

    def test_a_bucket_that_is_not_there_is_told(self, store: Store, bucket: str) -> None:
        nowhere = open_store(bucket.replace("contracts", "nowhere") % "a")
        refused = r"s3://nowhere/a: writing x failed .*NO_SUCH_BUCKET"
        with pytest.raises(StoreFailed, match=refused):
            nowhere.write("x", b"")
