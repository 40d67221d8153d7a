"""Views in Redis, with a real server."""

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from millstream.base.errors import Retryable
from millstream.base.ports import Fenced
from millstream.schemas.declaration import schema_of
from millstream.views.receipts import ClaimLost, RowsLost
from millstream.views.store import Home
from millstream.views.stores.redis.link import (
    NotesUnreadable,
    RedisFull,
    RedisLink,
    RedisNotReached,
    RedisRefused,
)
from millstream.views.stores.redis.store import Redis, RedisStore, RedisView
from tests.contracts.view_store_contract import (
    COUNTS,
    OpenStore,
    StoreContract,
    changes,
    receipt,
    row_of,
    rows,
)
from tests.support.redis_server import FORGETFUL, RedisServer

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


def counts_in(server: RedisServer, prefix: str = "shop") -> RedisStore:
    return RedisStore(server.url, prefix=prefix, view="counts", key=["url"])


def claimed(store: RedisStore, generation: int = 1) -> tuple[RedisView, int]:
    writer = store.writer(generation)
    return writer, writer.claim("counts", schema_of(COUNTS))


class TestRedis(StoreContract):
    @pytest.fixture
    def store(self, server: RedisServer, prefix: str) -> OpenStore:
        def store(*, key: list[str], view: str = "counts") -> RedisStore:
            return RedisStore(server.url, prefix=prefix, view=view, key=key)

        return store


class TestRows:
    def test_any_client_can_read_them(self, server: RedisServer, prefix: str) -> None:
        """As docs/formats/redis_views.md says it."""
        ddl = "shop INT, item STRING, price DECIMAL(8, 2), share DOUBLE, at TIMESTAMP"
        store = RedisStore(server.url, prefix=prefix, view="prices", key=["shop", "item"])
        writer = store.writer(1)
        epoch = writer.claim("prices", schema_of(ddl))
        found = rows(ddl, (7, "tea", 3, float("nan"), None))
        writer.write(receipt(epoch=epoch, batch=0, job="prices"), found)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            served = client.hget(f"{prefix}:prices", "served")
            text: Any = client.hget(f"{prefix}:prices:{served}:rows", '{"shop":7,"item":"tea"}')
        row = {"shop": 7, "item": "tea", "price": "3.00", "share": "NaN", "at": None}
        assert json.loads(text) == row
        writer.close()

    def test_nothing_is_left_of_what_went(self, server: RedisServer, prefix: str) -> None:
        writer, epoch = claimed(counts_in(server, prefix))
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1), ("/a", 1)))
        gone = changes(("/", None, "delete"), ("/a", None, "delete"))
        writer.write(receipt(epoch=epoch, batch=1), gone)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.keys(f"{prefix}:*") == [f"{prefix}:counts"]
        writer.close()

    def test_a_dropped_view_leaves_only_its_epoch(self, server: RedisServer, prefix: str) -> None:
        """So that no run from before the drop writes into a view of the same name."""
        store = counts_in(server, prefix)
        zombie, old = claimed(store)
        zombie.write(receipt(epoch=old, batch=0), rows(COUNTS, ("/", 1)))
        store.drop()
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.keys(f"{prefix}:*") == [f"{prefix}:counts"]
        writer, _ = claimed(store)
        with pytest.raises(Fenced):
            zombie.write(receipt(epoch=old, batch=0, query="b"), rows(COUNTS, ("/", 666)))
        assert store.reader().scan() == []
        for one in (zombie, writer):
            one.close()

    def test_a_range_reads_only_its_rows(self, server: RedisServer, prefix: str) -> None:
        ddl = "shop INT, item STRING, n INT"
        store = RedisStore(server.url, prefix=prefix, view="stock", key=["shop", "item"])
        writer = store.writer(1)
        epoch = writer.claim("stock", schema_of(ddl))
        found = [(shop, item, 1) for shop in (-1, 2, 10) for item in ("a", "a\x00", "b", None)]
        writer.write(receipt(epoch=epoch, batch=0, job="stock"), rows(ddl, *found))
        reads = store.reader()

        def keys(*bounds: Any, limit: int | None = None) -> list[tuple[Any, Any]]:
            return [(row["shop"], row["item"]) for row in reads.range(*bounds, limit=limit)]

        assert keys((2,), (2,)) == [(2, "a"), (2, "a\x00"), (2, "b"), (2, None)]
        assert keys((2, "a"), (2, "a")) == [(2, "a")]
        assert keys((2, "a\x00"), (10, "a")) == [(2, "a\x00"), (2, "b"), (2, None), (10, "a")]
        assert keys(None, (-1, "b"), limit=2) == [(-1, "a"), (-1, "a\x00")]
        assert keys((11,), None) == []
        for one in (writer, reads):
            one.close()


class TestOneStep:
    def test_readers_see_whole_batches(self, server: RedisServer, prefix: str) -> None:
        """Every batch replaces all rows: two numbers at a time would be half of a batch."""
        store = counts_in(server, prefix)
        writer, epoch = claimed(store)
        done = threading.Event()
        urls = [f"/{number:04}" for number in range(3_000)]

        def write() -> None:
            for batch in range(15):
                table = rows(COUNTS, *((url, batch) for url in urls))
                writer.write(receipt(epoch=epoch, batch=batch), table)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        reads = store.reader()
        seen: set[int] = set()
        while not done.is_set() or not seen:
            found = {row["count"] for row in reads.scan()}
            found_by_key = {row and row["count"] for row in reads.get_many(urls)}
            assert len(found) <= 1, "half of a batch"
            assert len(found_by_key) <= 1, "half of a batch"
            seen |= found
        thread.join()
        assert {row["count"] for row in reads.scan()} == {14}
        for one in (writer, reads):
            one.close()

    def test_what_is_staged_is_not_there_yet(self, server: RedisServer, prefix: str) -> None:
        """A run that dies after it has staged a batch has written nothing of it."""
        store = counts_in(server, prefix)
        writer, epoch = claimed(store)
        link = RedisLink(server.url, prefix=prefix, view="counts")
        link.stage([(b"/", b"/", b'{"url":"/","count":666}')], generation=1, epoch=epoch)
        assert store.reader().scan() == []
        with redis.Redis.from_url(server.url) as client:
            assert int(client.ttl(link.staged(1, epoch))) > 0, "goes by itself"
        writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/a", 1)))
        assert store.reader().scan() == [{"url": "/a", "count": 1}]
        for one in (writer, link):
            one.close()

    def test_a_run_that_is_fenced_while_it_stages_writes_nothing(
        self, server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = counts_in(server, prefix)
        zombie, old = claimed(store)
        stage = RedisLink.stage

        def stage_and_lose(link: RedisLink, *given: Any, **named: Any) -> int:
            monkeypatch.undo()
            claimed(store)[0].close()
            return stage(link, *given, **named)

        monkeypatch.setattr(RedisLink, "stage", stage_and_lose)
        with pytest.raises(Fenced):
            zombie.write(receipt(epoch=old, batch=0), rows(COUNTS, ("/", 666)))
        assert store.reader().scan() == []
        zombie.close()

    def test_of_two_that_write_one_batch_one_does(self, server: RedisServer, prefix: str) -> None:
        store = counts_in(server, prefix)
        writer, epoch = claimed(store)
        other = store.writer(1)
        other._layout = writer._layout  # the same run, in another thread
        start = threading.Barrier(2)
        done: list[bool] = []

        def write(one: RedisView, count: int) -> None:
            start.wait()
            done.append(one.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", count))))

        threads = [
            threading.Thread(target=write, args=(one, count))
            for count, one in enumerate((writer, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == [False, True]
        for one in (writer, other):
            one.close()


class TestTrouble:
    def test_a_server_that_goes_away_and_comes_back(self) -> None:
        with RedisServer() as server:
            store = counts_in(server)
            writer, epoch = claimed(store)
            reads = store.reader()
            writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
            server.kill()
            with pytest.raises(RedisNotReached, match=r"127.0.0.1.*shop:counts.*does not answer"):
                writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
            with pytest.raises(Retryable):
                reads.scan()
            server.start()
            assert reads.scan() == [{"url": "/", "count": 1}]
            assert writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
            assert reads.scan() == [{"url": "/", "count": 2}]
            for one in (writer, reads):
                one.close()

    def test_a_server_that_has_lost_its_data_is_noticed_and_filled_again(self) -> None:
        with RedisServer(FORGETFUL) as server:
            store = counts_in(server)
            writer, epoch = claimed(store)
            writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
            server.kill()
            server.start()
            with pytest.raises(RowsLost, match=r"goes on with batch 1, but .* holds nothing"):
                writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
            with pytest.raises(ClaimLost):
                writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 2)))
            with pytest.raises(ClaimLost):
                writer.serve()
            epoch = writer.claim("counts", schema_of(COUNTS))
            with pytest.raises(RowsLost):
                writer.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
            assert writer.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 3)))
            assert row_of(store.reader(), "/") == {"url": "/", "count": 3}
            writer.close()

    def test_a_full_server_takes_all_of_a_batch_or_nothing(self) -> None:
        with RedisServer() as server:
            store = counts_in(server)
            writer, epoch = claimed(store)
            writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
            server.configure("maxmemory", "1")
            many = rows(COUNTS, *((f"/{number}", 2) for number in range(5_000)))
            with pytest.raises(RedisFull, match="takes nothing more"):
                writer.write(receipt(epoch=epoch, batch=1), many)
            assert store.reader().scan() == [{"url": "/", "count": 1}]
            server.configure("maxmemory", "0")
            assert writer.write(receipt(epoch=epoch, batch=1), many)
            assert store.reader().count() == 5_001
            writer.close()

    def test_a_server_that_fills_up_between_staging_and_applying(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with RedisServer() as server:
            store = counts_in(server)
            writer, epoch = claimed(store)
            writer.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
            stage = RedisLink.stage

            def stage_and_fill(link: RedisLink, *given: Any, **named: Any) -> int:
                staged = stage(link, *given, **named)
                server.configure("maxmemory", "1")
                return staged

            monkeypatch.setattr(RedisLink, "stage", stage_and_fill)
            mixed = changes(("/", None, "delete"), *((f"/{n}", n, "upsert") for n in range(5_000)))
            with pytest.raises(RedisFull):
                writer.write(receipt(epoch=epoch, batch=1), mixed)
            assert store.reader().scan() == [{"url": "/", "count": 1}]
            assert [one.batch for one in store.generations()] == [0]
            writer.close()

    def test_a_login_that_is_refused_does_not_show_its_password(self, server: RedisServer) -> None:
        url = server.url.replace("redis://", "redis://ada:secret@")
        store = RedisStore(url, prefix="shop", view="counts", key=["url"])
        with pytest.raises(RedisRefused) as refused:
            store.generations()
        assert "secret" not in f"{refused.value} {store.place}"

    def test_notes_of_another_format_are_refused(self, server: RedisServer, prefix: str) -> None:
        with redis.Redis.from_url(server.url) as client:
            client.hset(f"{prefix}:counts", "format", "99")
        with pytest.raises(NotesUnreadable, match="format 99, this version reads 1"):
            claimed(counts_in(server, prefix))

    def test_a_key_of_somebody_else_is_refused(self, server: RedisServer, prefix: str) -> None:
        with redis.Redis.from_url(server.url) as client:
            client.set(f"{prefix}:counts", "mine")
        with pytest.raises(RedisRefused, match="WRONGTYPE"):
            claimed(counts_in(server, prefix))


def test_the_application_is_the_prefix_unless_one_is_given(tmp_path: Path) -> None:
    home = Home(app="shop", data=tmp_path)
    url = "redis://cache:6379/0"
    assert Redis(url).open("v", ("id",), home).place == f"{url}, key shop:v"
    assert Redis(url, prefix="other").open("v", ("id",), home).place == f"{url}, key other:v"
