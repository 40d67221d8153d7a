"""What a job asks of the store of its view: one suite for every store."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.base.ports import BatchReceipt, Fenced, ViewWriter
from millstream.schemas.arrow_types import schema_to_arrow
from millstream.schemas.declaration import schema_of
from millstream.views.netting import BadChange
from millstream.views.receipts import OwnedByAnother, RowsLost
from millstream.views.stores.sqlite_reader import ViewReader
from millstream.views.stores.sqlite_store import SqliteView
from millstream.views.table_layout import ChangedView, NullKey

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
COUNTS = "url STRING, count BIGINT"
Open = Callable[..., ViewWriter]
Read = Callable[[], ViewReader]


def rows(ddl: str, *found: tuple[Any, ...]) -> pa.Table:
    """A batch as Spark gives it."""
    schema = schema_to_arrow(schema_of(ddl))
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in found], schema
    )


def changes(*found: tuple[Any, ...]) -> pa.Table:
    return rows(f"{COUNTS}, _change STRING", *found)


class StoreContract:
    """Subclasses say how to open the store of one view for writing, and how to read it."""

    @pytest.fixture
    def open_store(self) -> Iterator[Open]:
        raise NotImplementedError

    @pytest.fixture
    def reader(self) -> Iterator[ViewReader]:
        raise NotImplementedError

    @pytest.fixture
    def write(self, open_store: Open) -> Callable[[pa.Table], bool]:
        """Write the next batch of the job `counts`, whose key is url."""
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        batches = iter(range(100))

        def write(table: pa.Table) -> bool:
            return store.write(receipt(epoch=epoch, batch=next(batches)), table)

        return write

    def test_rows_replace_those_of_their_key(self, write: Any, reader: ViewReader) -> None:
        write(rows(COUNTS, ("/", 1), ("/a", 1)))
        write(rows(COUNTS, ("/", 2)))
        assert reader.scan() == [{"url": "/", "count": 2}, {"url": "/a", "count": 1}]
        assert reader.get("/") == {"url": "/", "count": 2}
        assert reader.get("/nowhere") is None

    def test_the_last_row_of_a_key_counts(self, write: Any, reader: ViewReader) -> None:
        write(rows(COUNTS, ("/", 1), ("/", 2), ("/", 3)))
        assert reader.scan() == [{"url": "/", "count": 3}]

    def test_a_repeated_batch_changes_nothing(self, open_store: Open, reader: ViewReader) -> None:
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        assert store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        assert not store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 2)))
        epoch = store.claim("counts", schema_of(COUNTS))
        assert not store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 3)))
        assert reader.get("/") == {"url": "/", "count": 1}

    def test_a_new_checkpoint_counts_from_zero(self, open_store: Open, reader: ViewReader) -> None:
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        store.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 1)))
        assert store.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 2)))
        assert reader.get("/") == {"url": "/", "count": 2}

    def test_a_job_that_starts_over_leaves_no_rows_of_its_former_life(
        self, open_store: Open, reader: ViewReader
    ) -> None:
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1), ("/old", 1)))
        store.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 1)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_job_does_not_go_on_into_the_view_of_another_checkpoint(
        self, open_store: Open, reader: ViewReader
    ) -> None:
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        with pytest.raises(RowsLost, match=r"its job goes on with batch 7, but .* holds nothing"):
            store.write(receipt(epoch=epoch, batch=7, query="b"), rows(COUNTS, ("/", 9)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_job_does_not_go_on_into_a_view_that_was_lost(self, open_store: Open) -> None:
        store = open_store(key=["url"])
        epoch = store.claim("counts", schema_of(COUNTS))
        with pytest.raises(RowsLost, match=r"its job goes on with batch 7, but .* holds nothing"):
            store.write(receipt(epoch=epoch, batch=7), rows(COUNTS, ("/", 1)))

    def test_an_older_run_of_the_job_is_fenced(self, open_store: Open, reader: ViewReader) -> None:
        zombie, store = open_store(key=["url"]), open_store(key=["url"])
        old = zombie.claim("counts", schema_of(COUNTS))
        new = store.claim("counts", schema_of(COUNTS))
        with pytest.raises(Fenced, match=r"a newer run of it has started \(epoch 2, this one"):
            zombie.write(receipt(epoch=old, batch=0), rows(COUNTS, ("/", 666)))
        assert store.write(receipt(epoch=new, batch=0), rows(COUNTS, ("/", 1)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_view_has_one_job(self, open_store: Open) -> None:
        open_store(key=["url"]).claim("counts", schema_of(COUNTS))
        with pytest.raises(OwnedByAnother, match="is written by job counts, not by other"):
            open_store(key=["url"]).claim("other", schema_of(COUNTS))

    def test_a_delete_needs_only_the_key(self, write: Any, reader: ViewReader) -> None:
        write(changes(("/", 1, "upsert"), ("/a", 1, "upsert")))
        write(changes(("/", None, "delete"), ("/b", None, "delete")))
        assert reader.scan() == [{"url": "/a", "count": 1}]

    def test_what_goes_goes_before_what_comes(self, write: Any, reader: ViewReader) -> None:
        write(changes(("/", 1, "upsert"), ("/", None, "delete")))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_the_order_of_changes_decides(self, write: Any, reader: ViewReader) -> None:
        ddl = f"{COUNTS}, _change STRING, _order BIGINT"
        write(rows(ddl, ("/", None, "delete", 9), ("/", 1, "upsert", 8)))
        write(rows(ddl, ("/a", 2, "upsert", 2), ("/a", 1, "upsert", 1)))
        assert reader.scan() == [{"url": "/a", "count": 2}]

    def test_a_retract_and_an_insert_are_an_update(self, write: Any, reader: ViewReader) -> None:
        write(changes(("/", 1, "insert"), ("/a", 1, "insert"), ("/b", 1, "insert")))
        write(changes(("/", 2, "insert"), ("/", 1, "retract"), ("/a", 1, "retract")))
        write(changes(("/b", 2, "insert"), ("/b", 2, "retract")))
        assert reader.scan() == [{"url": "/", "count": 2}, {"url": "/b", "count": 1}]

    def test_two_rows_left_for_one_key_are_refused(self, write: Any, reader: ViewReader) -> None:
        with pytest.raises(BadChange, match="2 rows are left for key"):
            write(changes(("/", 1, "insert"), ("/", 2, "insert")))
        assert reader.scan() == []

    def test_a_row_without_a_key_is_refused(self, write: Any, reader: ViewReader) -> None:
        with pytest.raises(NullKey, match=r"2 rows have no key \(url is null\)"):
            write(rows(COUNTS, (None, 1), ("/", 1), (None, 2)))
        assert reader.scan() == []

    def test_an_empty_batch_moves_the_position(self, write: Any, reader: ViewReader) -> None:
        write(rows(COUNTS))
        assert reader.position() == {"clicks": {0: 10, 1: 0}}
        write(rows(COUNTS))
        assert reader.position() == {"clicks": {0: 10, 1: 1}}

    def test_every_type_comes_back_as_it_was(self, open_store: Open, reader: ViewReader) -> None:
        table = rows(EVERY_TYPE, LARGE, SMALL, NULLS)
        store = open_store(key=["id"])
        epoch = store.claim("counts", schema_of(EVERY_TYPE))
        store.write(receipt(epoch=epoch, batch=0), table)
        found = [list(row.values()) for row in reader.scan()]
        assert found == [list(LARGE), list(SMALL), list(NULLS)]

    def test_not_a_number_is_kept(self, open_store: Open, reader: ViewReader) -> None:
        store = open_store(key=["id"])
        epoch = store.claim("counts", schema_of("id INT, x DOUBLE, y FLOAT"))
        table = rows("id INT, x DOUBLE, y FLOAT", (1, float("nan"), float("inf")), (2, None, -0.5))
        store.write(receipt(epoch=epoch, batch=0), table)
        assert [repr(row["x"]) for row in reader.scan()] == ["nan", "None"]
        assert [row["y"] for row in reader.scan()] == [float("inf"), -0.5]

    def test_a_window_can_be_the_key(self, open_store: Open, reader: ViewReader) -> None:
        ddl = "window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, url STRING, count BIGINT"
        later = NOON + timedelta(minutes=1)
        window = {"start": NOON, "end": later}
        store = open_store(key=["window", "url"])
        epoch = store.claim("counts", schema_of(ddl))
        store.write(receipt(epoch=epoch, batch=0), rows(ddl, (window, "/", 1), (window, "/a", 1)))
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (window, "/", 2)))
        row = {"window": window, "url": "/", "count": 2}
        assert reader.get((NOON, later), "/") == row
        assert reader.get({"url": "/", "window": window}) == row
        assert reader.get_many([(window, "/"), (window, "/b")]) == [row, None]
        assert [one["url"] for one in reader.scan(where={"window.start >=": NOON})] == ["/", "/a"]

    def test_a_part_of_a_key_may_be_null(self, open_store: Open, reader: ViewReader) -> None:
        ddl = "order BIGINT, customer BIGINT, blob BINARY, name STRING"
        store = open_store(key=["order", "customer", "blob"])
        epoch = store.claim("counts", schema_of(ddl))
        unmatched = rows(ddl, (1, None, None, "a"), (1, None, b"", "b"), (1, None, b"null", "c"))
        store.write(receipt(epoch=epoch, batch=0), unmatched)
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (1, None, None, "d")))
        assert sorted(row["name"] for row in reader.scan()) == ["b", "c", "d"]
        assert (reader.get(1, None, None) or {})["name"] == "d"
        assert [row["name"] for row in reader.scan(where={"blob": None})] == ["d"]

    def test_columns_may_be_added_and_widened(self, open_store: Open, reader: ViewReader) -> None:
        narrow, wide = "id INT, n INT", "id INT, s STRUCT<a: INT>, n BIGINT"
        store = open_store(key=["id"])
        epoch = store.claim("counts", schema_of(narrow))
        store.write(receipt(epoch=epoch, batch=0), rows(narrow, (1, 1)))
        epoch = store.claim("counts", schema_of(wide))
        store.write(receipt(epoch=epoch, batch=1), rows(wide, (2, {"a": 1}, 1 << 40)))
        assert reader.scan() == [
            {"id": 1, "s": None, "n": 1},
            {"id": 2, "s": {"a": 1}, "n": 1 << 40},
        ]

    @pytest.mark.parametrize("parts", ["b: STRING, a: STRING", "a: STRING, c: STRING, b: STRING"])
    def test_parts_in_a_list_are_kept_by_place_and_may_not_move(
        self, open_store: Open, reader: ViewReader, parts: str
    ) -> None:
        ddl = "id INT, list ARRAY<STRUCT<inner: STRUCT<{}>>>"
        store = open_store(key=["id"])
        kept = ddl.format("a: STRING, b: STRING")
        epoch = store.claim("counts", schema_of(kept))
        table = rows(kept, (1, [{"inner": {"a": "A", "b": "B"}}]))
        store.write(receipt(epoch=epoch, batch=0), table)
        with pytest.raises(ChangedView, match=r"the parts of `list\[\].inner` were a, b and are"):
            store.claim("counts", schema_of(ddl.format(parts)))
        store.claim("counts", schema_of(ddl.format("a: STRING, b: STRING, c: STRING")))
        assert reader.scan() == [{"id": 1, "list": [{"inner": {"a": "A", "b": "B", "c": None}}]}]

    @pytest.mark.parametrize(
        ("ddl", "key", "message"),
        [
            ("url STRING, count STRING", "url", "`count` was BIGINT and is STRING"),
            ("url STRING", "url", "`count` was BIGINT and is gone"),
            (COUNTS, "count", "its key was url and is count"),
        ],
    )
    def test_other_columns_are_refused(
        self, open_store: Open, ddl: str, key: str, message: str
    ) -> None:
        open_store(key=["url"]).claim("counts", schema_of(COUNTS))
        with pytest.raises(ChangedView, match=message):
            open_store(key=[key]).claim("counts", schema_of(ddl))

    def test_a_rebuilt_view_is_read_once_it_is_served(
        self, open_store: Open, reader: ViewReader
    ) -> None:
        old, new = open_store(key=["url"]), open_store(key=["n"], generation=2)
        epoch = old.claim("counts", schema_of(COUNTS))
        old.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 2)))
        old.write(receipt(epoch=epoch, batch=5), rows(COUNTS, ("/", 1)))
        epoch = new.claim("counts", schema_of("n INT, s STRING"))
        new.write(receipt(epoch=epoch, batch=0, query="b"), rows("n INT, s STRING", (1, "x")))
        assert reader.scan() == [{"url": "/", "count": 1}]
        assert reader.position() == {"clicks": {0: 10, 1: 5}}
        with pytest.raises(Fenced):
            old.serve()
        new.serve()
        assert reader.scan() == [{"n": 1, "s": "x"}]
        assert reader.position() == {"clicks": {0: 10, 1: 0}}


def receipt(*, epoch: int, batch: int, query: str = "a") -> BatchReceipt:
    return BatchReceipt(
        job="counts",
        epoch=epoch,
        query=query,
        batch=batch,
        positions={"clicks": {0: 10, 1: batch}},
    )


EVERY_TYPE = """
    id INT, a BOOLEAN, b TINYINT, c SMALLINT, d BIGINT, e FLOAT, f DOUBLE, g STRING, h BINARY,
    i DATE, j TIMESTAMP, k TIMESTAMP_NTZ, l DECIMAL(38, 10), m ARRAY<DECIMAL(5, 2)>,
    n MAP<DATE, TIMESTAMP>, o STRUCT<x: STRUCT<y: BINARY>, z: ARRAY<STRUCT<t: DATE, u: DOUBLE>>>
"""
LARGE: tuple[Any, ...] = (
    1,
    True,
    127,
    32767,
    (1 << 63) - 1,
    1.5,
    1.7976931348623157e308,
    "Ägypten 🐫 \x00 end",
    bytes(range(256)),
    date(9999, 12, 31),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    Decimal("9999999999999999999999999999.9999999999"),
    [Decimal("999.99"), None],
    {date(2026, 1, 1): NOON, date(2026, 1, 2): None},
    {"x": {"y": b"\xff"}, "z": [{"t": date(2026, 1, 1), "u": 0.1}, None]},
)
SMALL: tuple[Any, ...] = (
    2,
    False,
    -128,
    -32768,
    -(1 << 63),
    -1.5,
    5e-324,
    "",
    b"",
    date(1, 1, 1),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1),
    Decimal("-0.0000000001"),
    [],
    {},
    {"x": None, "z": []},
)
NULLS: tuple[Any, ...] = (3, *[None] * 15)


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[Open]:
        stores: list[SqliteView] = []

        def open_store(*, key: list[str], generation: int = 1) -> SqliteView:
            path = tmp_path / "counts.sqlite"
            stores.append(SqliteView(path, view="counts", key=key, generation=generation))
            return stores[-1]

        yield open_store
        for store in stores:
            store.close()

    @pytest.fixture
    def reader(self, tmp_path: Path) -> Iterator[ViewReader]:
        with ViewReader(tmp_path / "counts.sqlite", view="counts") as reader:
            yield reader
