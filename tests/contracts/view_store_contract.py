"""What a job, its readers and who looks after views ask of a store: one suite for every store.

A subclass says how to open the store of a view (`store`), and which types it refuses (`refuses`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pytest

from millstream.base.errors import Rejected
from millstream.base.ports import BatchReceipt, Fenced, ViewWriter
from millstream.processing.writing.output import ViewHold
from millstream.queues.outbox import Receipt
from millstream.schemas.arrow_types import schema_from_arrow, schema_to_arrow
from millstream.schemas.declaration import schema_of
from millstream.views.netting import BadChange
from millstream.views.receipts import OwnedByAnother, PlannedAgain, RowsLost
from millstream.views.store import (
    BadQuestion,
    GenerationServed,
    NoSuchGeneration,
    Row,
    ViewNotFound,
    ViewReads,
    ViewStore,
)
from millstream.views.table_layout import ChangedView, NullKey
from millstream.views.view import View
from millstream.views.waiting import NotFreshYet
from tests.support import naive_view
from tests.support.odd_names import ODD_NAMES

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
COUNTS = "url STRING, count BIGINT"


class OpenStore(Protocol):
    """Each call opens the same place anew, as another process would."""

    def __call__(self, *, key: list[str], view: str = "counts") -> ViewStore: ...


class OpenWriter(Protocol):
    def __call__(self, *key: str, generation: int = 1) -> ViewWriter: ...


class OpenReads(Protocol):
    def __call__(self, *key: str, generation: int | None = None) -> ViewReads: ...


Write = Callable[[pa.Table], bool]


def rows(ddl: str, *found: tuple[Any, ...]) -> pa.Table:
    """A batch as Spark gives it."""
    schema = schema_to_arrow(schema_of(ddl))
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in found], schema
    )


def changes(*found: tuple[Any, ...]) -> pa.Table:
    return rows(f"{COUNTS}, _change STRING", *found)


def receipt(*, epoch: int, batch: int, query: str = "a", job: str = "counts") -> BatchReceipt:
    return BatchReceipt(
        job=job,
        epoch=epoch,
        query=query,
        batch=batch,
        positions={"clicks": {0: 10, 1: batch}},
    )


def row_of(reads: ViewReads, *key: Any) -> Row | None:
    return reads.get_many([key])[0]


class StoreContract:
    # Types of TYPES that the store cannot keep exactly: a claim with them is refused.
    refuses: ClassVar[frozenset[str]] = frozenset()
    # Those that it keeps, but finds no row by: a claim with them in the key is refused.
    refuses_in_key: ClassVar[frozenset[str]] = frozenset()

    # Names of columns that the store cannot have: a claim with them is refused.
    not_names: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture
    def store(self) -> OpenStore:
        raise NotImplementedError

    @pytest.fixture
    def writer(self, store: OpenStore) -> Iterator[OpenWriter]:
        opened: list[ViewWriter] = []

        def open_writer(*key: str, generation: int = 1) -> ViewWriter:
            opened.append(store(key=list(key)).writer(generation))
            return opened[-1]

        yield open_writer
        for one in opened:
            one.close()

    @pytest.fixture
    def reads(self, store: OpenStore) -> Iterator[OpenReads]:
        opened: list[ViewReads] = []

        def open_reads(*key: str, generation: int | None = None) -> ViewReads:
            opened.append(store(key=list(key)).reader(generation))
            return opened[-1]

        yield open_reads
        for one in opened:
            one.close()

    @pytest.fixture
    def write(self, writer: OpenWriter) -> Write:
        """Write the next batch of the job `counts`, whose key is url."""
        counts = writer("url")
        epoch = counts.claim("counts", schema_of(COUNTS))
        batches = iter(range(100))

        def write(table: pa.Table) -> bool:
            return counts.write(receipt(epoch=epoch, batch=next(batches)), table)

        return write

    @pytest.fixture
    def reader(self, reads: OpenReads) -> ViewReads:
        """Of the view of counts by url."""
        return reads("url")

    # --- rows ---------------------------------------------------------------------------------

    def test_rows_replace_those_of_their_key(self, write: Write, reader: ViewReads) -> None:
        write(rows(COUNTS, ("/", 1), ("/a", 1)))
        write(rows(COUNTS, ("/", 2)))
        assert reader.scan() == [{"url": "/", "count": 2}, {"url": "/a", "count": 1}]
        assert row_of(reader, "/") == {"url": "/", "count": 2}
        assert row_of(reader, "/nowhere") is None
        assert reader.count() == 2

    def test_the_last_row_of_a_key_counts(self, write: Write, reader: ViewReads) -> None:
        write(rows(COUNTS, ("/", 1), ("/", 2), ("/", 3)))
        assert reader.scan() == [{"url": "/", "count": 3}]

    def test_rows_come_by_key(self, writer: OpenWriter, reads: OpenReads) -> None:
        ddl = "id BIGINT, name STRING"
        store = writer("id")
        epoch = store.claim("counts", schema_of(ddl))
        found = [(number, f"{number}") for number in (10, -1, 9, 100, 0, 2, -20)]
        store.write(receipt(epoch=epoch, batch=0), rows(ddl, *found))
        assert [row["id"] for row in reads("id").scan()] == [-20, -1, 0, 2, 9, 10, 100]
        assert [row["id"] for row in reads("id").range(0, 10)] == [0, 2, 9, 10]
        assert [row["id"] for row in reads("id").scan(limit=2)] == [-20, -1]

    def test_a_delete_needs_only_the_key(self, write: Write, reader: ViewReads) -> None:
        write(changes(("/", 1, "upsert"), ("/a", 1, "upsert")))
        write(changes(("/", None, "delete"), ("/b", None, "delete")))
        assert reader.scan() == [{"url": "/a", "count": 1}]

    def test_what_goes_goes_before_what_comes(self, write: Write, reader: ViewReads) -> None:
        write(changes(("/", 1, "upsert"), ("/", None, "delete")))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_the_order_of_changes_decides(self, write: Write, reader: ViewReads) -> None:
        ddl = f"{COUNTS}, _change STRING, _order BIGINT"
        write(rows(ddl, ("/", None, "delete", 9), ("/", 1, "upsert", 8)))
        write(rows(ddl, ("/a", 2, "upsert", 2), ("/a", 1, "upsert", 1)))
        assert reader.scan() == [{"url": "/a", "count": 2}]

    def test_a_retract_and_an_insert_are_an_update(self, write: Write, reader: ViewReads) -> None:
        write(changes(("/", 1, "insert"), ("/a", 1, "insert"), ("/b", 1, "insert")))
        write(changes(("/", 2, "insert"), ("/", 1, "retract"), ("/a", 1, "retract")))
        write(changes(("/b", 2, "insert"), ("/b", 2, "retract")))
        assert reader.scan() == [{"url": "/", "count": 2}, {"url": "/b", "count": 1}]

    def test_two_rows_left_for_one_key_are_refused(self, write: Write, reader: ViewReads) -> None:
        with pytest.raises(BadChange, match="2 rows are left for key"):
            write(changes(("/", 1, "insert"), ("/", 2, "insert")))
        assert reader.scan() == []

    def test_a_batch_may_be_large(self, write: Write, reader: ViewReads) -> None:
        write(rows(COUNTS, *((f"/{number:05}", number) for number in range(20_000))))
        write(changes(*((f"/{number:05}", None, "delete") for number in range(19_990))))
        assert reader.count() == 10
        assert row_of(reader, "/19999") == {"url": "/19999", "count": 19_999}

    # --- keys ---------------------------------------------------------------------------------

    def test_a_row_without_a_key_is_refused(self, write: Write, reader: ViewReads) -> None:
        with pytest.raises(NullKey, match=r"2 rows have no key \(url is null\)"):
            write(rows(COUNTS, (None, 1), ("/", 1), (None, 2)))
        assert reader.scan() == []

    def test_a_part_of_a_key_may_be_null(self, writer: OpenWriter, reads: OpenReads) -> None:
        ddl = "order BIGINT, customer BIGINT, blob BINARY, name STRING"
        key = ("order", "customer", "blob")
        store = writer(*key)
        epoch = store.claim("counts", schema_of(ddl))
        unmatched = rows(ddl, (1, None, None, "a"), (1, None, b"", "b"), (1, None, b"null", "c"))
        store.write(receipt(epoch=epoch, batch=0), unmatched)
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (1, None, None, "d")))
        reader = reads(*key)
        assert sorted(row["name"] for row in reader.scan()) == ["b", "c", "d"]
        assert (row_of(reader, 1, None, None) or {})["name"] == "d"
        assert [row["name"] for row in reader.scan(where={"blob": None})] == ["d"]

    def test_a_row_whose_key_is_null_in_part_can_go(
        self, writer: OpenWriter, reads: OpenReads
    ) -> None:
        ddl = "order BIGINT, customer BIGINT, name STRING, _change STRING"
        store = writer("order", "customer")
        epoch = store.claim("counts", schema_of(ddl))
        came = rows(ddl, (1, None, "a", "upsert"), (1, 0, "b", "upsert"))
        store.write(receipt(epoch=epoch, batch=0), came)
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (1, None, None, "delete")))
        assert [row["name"] for row in reads("order", "customer").scan()] == ["b"]

    def test_a_window_can_be_the_key(self, writer: OpenWriter, reads: OpenReads) -> None:
        ddl = "window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, url STRING, count BIGINT"
        later = NOON + timedelta(minutes=1)
        window = {"start": NOON, "end": later}
        store = writer("window", "url")
        epoch = store.claim("counts", schema_of(ddl))
        store.write(receipt(epoch=epoch, batch=0), rows(ddl, (window, "/", 1), (window, "/a", 1)))
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (window, "/", 2)))
        row = {"window": window, "url": "/", "count": 2}
        reader = reads("window", "url")
        assert row_of(reader, (NOON, later), "/") == row
        assert reader.get_many([{"url": "/", "window": window}]) == [row]
        assert reader.get_many([(window, "/"), (window, "/b")]) == [row, None]
        assert [one["url"] for one in reader.scan(where={"window.start >=": NOON})] == ["/", "/a"]

    @pytest.mark.parametrize("name", "adefghijklm")
    def test_a_key_of_any_type_but_a_map_finds_its_row(
        self, writer: OpenWriter, reads: OpenReads, name: str
    ) -> None:
        kind, large, small = next(one[1:] for one in TYPES if one[0] == name)
        if kind in self.refuses | self.refuses_in_key:
            pytest.skip(f"this store refuses {kind}")
        ddl = f"id {kind}, n INT"
        store = writer("id")
        epoch = store.claim("counts", schema_of(ddl))
        store.write(receipt(epoch=epoch, batch=0), rows(ddl, (large, 1), (small, 2)))
        store.write(receipt(epoch=epoch, batch=1), rows(ddl, (large, 3)))
        found = reads("id").get_many([large, small])
        assert found == [{"id": large, "n": 3}, {"id": small, "n": 2}]
        assert reads("id").count() == 2

    @pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "ARRAY<DOUBLE>", "STRUCT<x: DOUBLE>"])
    def test_zero_is_one_key_whatever_its_sign(
        self, writer: OpenWriter, reads: OpenReads, kind: str
    ) -> None:
        if kind.startswith("ARRAY") and self.refuses_in_key:
            pytest.skip("this store refuses arrays in keys")
        zero, minus = (zero_of(kind, number) for number in (0.0, -0.0))
        ddl = f"id {kind}, n INT, _change STRING, _order BIGINT"
        store, reader = writer("id"), reads("id")
        epoch = store.claim("counts", schema_of(ddl))
        batches: list[tuple[list[tuple[Any, ...]], list[Any]]] = [
            ([(minus, 1, "upsert", 1), (zero, 2, "upsert", 2)], [2]),
            ([(minus, 3, "upsert", 3)], [3]),
            ([(zero, 4, "upsert", 4), (minus, None, "delete", 5)], []),
            ([(minus, 6, "upsert", 6), (zero, None, "delete", 7)], []),
            ([(zero, 8, "upsert", 8)], [8]),
            ([(minus, None, "delete", 9)], []),
        ]
        for batch, (changed, left) in enumerate(batches):
            store.write(receipt(epoch=epoch, batch=batch), rows(ddl, *changed))
            assert [row["n"] for row in reader.scan()] == left
            found = reader.get_many([{"id": zero}, {"id": minus}])
            assert [row and row["n"] for row in found] == (left or [None]) * 2

    def test_an_array_that_finds_no_row_is_refused_in_a_key(
        self, writer: OpenWriter, store: OpenStore
    ) -> None:
        for kind in sorted(self.refuses_in_key):
            with pytest.raises(Rejected, match="id of its key"):
                writer("id").claim("counts", schema_of(f"id {kind}, n INT"))
            assert store(key=["id"]).generations() == []

    # --- values -------------------------------------------------------------------------------

    def test_every_type_comes_back_as_it_was(self, writer: OpenWriter, reads: OpenReads) -> None:
        kept = [one for one in TYPES if one[1] not in self.refuses]
        ddl = "id INT, " + ", ".join(f"{name} {kind}" for name, kind, *_ in kept)
        large = (1, *(one[2] for one in kept))
        small = (2, *(one[3] for one in kept))
        nulls = (3, *[None] * len(kept))
        store = writer("id")
        epoch = store.claim("counts", schema_of(ddl))
        store.write(receipt(epoch=epoch, batch=0), rows(ddl, large, small, nulls))
        found = [tuple(row.values()) for row in reads("id").scan()]
        assert found == [large, small, nulls]
        assert [repr(one) for one in found[1]] == [repr(one) for one in small]

    def test_a_type_that_cannot_be_kept_is_refused_before_anything_is_written(
        self, writer: OpenWriter, store: OpenStore
    ) -> None:
        for kind in sorted(self.refuses):
            with pytest.raises(Rejected, match="x"):
                writer("id").claim("counts", schema_of(f"id INT, x {kind}"))
            assert store(key=["id"]).generations() == []

    def test_not_a_number_is_kept(self, writer: OpenWriter, reads: OpenReads) -> None:
        ddl = "id INT, x DOUBLE, y FLOAT"
        store = writer("id")
        epoch = store.claim("counts", schema_of(ddl))
        table = rows(ddl, (1, float("nan"), float("inf")), (2, None, -0.5))
        store.write(receipt(epoch=epoch, batch=0), table)
        found = reads("id").scan()
        assert [repr(row["x"]) for row in found] == ["nan", "None"]
        assert [row["y"] for row in found] == [float("inf"), -0.5]

    def test_a_column_may_have_any_name(self, writer: OpenWriter, reads: OpenReads) -> None:
        """Also in the key: statements of a store must not take it for something else."""
        names = [name for name in ODD_NAMES if name not in self.not_names]
        key = [name for name in ("n", "%s", 'a"b', "a%b", "kept", "select") if name in names]
        schema = pa.schema([pa.field(name, pa.string()) for name in names])
        made = writer(*key)
        epoch = made.claim("counts", schema_from_arrow(schema))
        found = [dict.fromkeys(names, value) for value in ("(9,9)", "%s", "gone")]
        made.write(receipt(epoch=epoch, batch=0), pa.Table.from_pylist(found, schema))
        gone = pa.Table.from_pylist([found[2]], schema).append_column("_change", [["delete"]])
        found[1] |= {name: "again" for name in names if name not in key}
        again = pa.Table.from_pylist([found[1]], schema).append_column("_change", [["upsert"]])
        made.write(receipt(epoch=epoch, batch=1), pa.concat_tables([gone, again]))
        reader = reads(*key)
        assert reader.get_many([tuple(found[0][name] for name in key)]) == [found[0]]
        assert sorted(reader.scan(), key=str) == sorted(found[:2], key=str)
        for name in (name for name in names if not any(map(str.isspace, name))):
            assert reader.scan(where={name: found[0][name]}) == [found[0]], name

    def test_a_text_may_hold_any_character(self, write: Write, reader: ViewReads) -> None:
        write(rows(COUNTS, ("a\x00b", 1), ("a", 2), ("'\"\\%_\n:{}", 3)))
        found = reader.get_many(["a\x00b", "a", "'\"\\%_\n:{}"])
        assert [row and row["count"] for row in found] == [1, 2, 3]

    # --- questions ----------------------------------------------------------------------------

    def test_every_question_is_answered_as_by_a_naive_reading(
        self, writer: OpenWriter, reads: OpenReads
    ) -> None:
        schema, key = schema_of(naive_view.DDL), ("place", "text")
        found = [dict(zip(naive_view.NAMES, row, strict=True)) for row in naive_view.ROWS]
        naive = naive_view.NaiveView(schema, key, found)
        counts = writer(*key)
        epoch = counts.claim("counts", schema)
        counts.write(receipt(epoch=epoch, batch=0), rows(naive_view.DDL, *naive_view.ROWS))
        reader = reads(*key)
        for asked in naive_view.SCANS:
            answer = naive_view.shown(reader.scan(**asked))
            assert answer == naive_view.shown(naive.scan(**asked)), asked
        for first, last in naive_view.RANGES:
            answer = naive_view.shown(reader.range(first or None, last or None))
            assert answer == naive_view.shown(naive.range(first, last)), (first, last)

    def test_a_read_after_a_write_waits_for_its_batch(
        self, write: Write, reader: ViewReads
    ) -> None:
        view = View("counts", reader)
        write(rows(COUNTS, ("/", 1)))
        assert view.get("/", after=Receipt("clicks", 0, 9), timeout=0) == {"url": "/", "count": 1}
        with pytest.raises(NotFreshYet, match=r"clicks\[1\] is read to 0, and asked to 1"):
            view.get("/", after=Receipt("clicks", 1, 0), timeout=0)
        write(rows(COUNTS, ("/", 2)))
        assert view.get("/", after=Receipt("clicks", 1, 0), timeout=0) == {"url": "/", "count": 2}

    def test_a_view_can_be_asked_in_sql(self, write: Write, reader: ViewReads) -> None:
        write(rows(COUNTS, ("/", 3), ("/a", 1), ("/b", None)))
        text = "SELECT url, count FROM counts WHERE count >= ? ORDER BY count DESC"
        answer = [{"url": "/", "count": 3}, {"url": "/a", "count": 1}]
        assert View("counts", reader).sql(text, [1]) == answer
        by_name = text.replace("?", "$least")
        assert View("counts", reader).sql(by_name, {"least": 1}) == answer
        with pytest.raises(BadQuestion):
            View("counts", reader).sql("DELETE FROM counts")
        assert reader.count() == 3

    # --- columns ------------------------------------------------------------------------------

    def test_columns_may_be_added_and_widened(self, writer: OpenWriter, reads: OpenReads) -> None:
        narrow, wide = "id INT, n INT", "id INT, s STRUCT<a: INT>, n BIGINT"
        store = writer("id")
        epoch = store.claim("counts", schema_of(narrow))
        store.write(receipt(epoch=epoch, batch=0), rows(narrow, (1, 1)))
        epoch = store.claim("counts", schema_of(wide))
        store.write(receipt(epoch=epoch, batch=1), rows(wide, (2, {"a": 1}, 1 << 40)))
        assert reads("id").scan() == [
            {"id": 1, "s": None, "n": 1},
            {"id": 2, "s": {"a": 1}, "n": 1 << 40},
        ]
        assert [field.name for field in reads("id").schema] == ["id", "s", "n"]

    @pytest.mark.parametrize(
        ("narrow", "wide", "key"),
        [("INT", "BIGINT", 7), ("DECIMAL(10, 2)", "DECIMAL(20, 2)", Decimal("1.50"))],
    )
    def test_a_key_that_is_widened_finds_the_rows_of_before(
        self, writer: OpenWriter, reads: OpenReads, narrow: str, wide: str, key: Any
    ) -> None:
        store = writer("id")
        for batch, kind in enumerate((narrow, wide)):
            ddl = f"id {kind}, n INT"
            epoch = store.claim("counts", schema_of(ddl))
            store.write(receipt(epoch=epoch, batch=batch), rows(ddl, (key, batch)))
        assert reads("id").scan() == reads("id").get_many([key]) == [{"id": key, "n": 1}]

    @pytest.mark.parametrize(
        ("kept", "wanted"),
        [
            ("INT", "DOUBLE"),
            ("FLOAT", "DOUBLE"),
            ("STRUCT<a: STRING>", "STRUCT<a: STRING, b: STRING>"),
            ("STRUCT<a: INT, b: INT>", "STRUCT<b: INT, a: INT>"),
        ],
    )
    def test_a_key_by_which_rows_would_not_be_found_is_refused(
        self, writer: OpenWriter, kept: str, wanted: str
    ) -> None:
        writer("id").claim("counts", schema_of(f"id {kept}, n INT"))
        with pytest.raises(ChangedView, match=f"its key `id` was {kept} and is {wanted}"):
            writer("id").claim("counts", schema_of(f"id {wanted}, n INT"))

    @pytest.mark.parametrize("parts", ["b: STRING, a: STRING", "a: STRING, c: STRING, b: STRING"])
    def test_parts_in_a_list_are_kept_by_place_and_may_not_move(
        self, writer: OpenWriter, reads: OpenReads, parts: str
    ) -> None:
        ddl = "id INT, list ARRAY<STRUCT<inner: STRUCT<{}>>>"
        store = writer("id")
        kept = ddl.format("a: STRING, b: STRING")
        epoch = store.claim("counts", schema_of(kept))
        table = rows(kept, (1, [{"inner": {"a": "A", "b": "B"}}]))
        store.write(receipt(epoch=epoch, batch=0), table)
        with pytest.raises(ChangedView, match=r"the parts of `list\[\].inner` were a, b and are"):
            store.claim("counts", schema_of(ddl.format(parts)))
        store.claim("counts", schema_of(ddl.format("a: STRING, b: STRING, c: STRING")))
        grown = [{"id": 1, "list": [{"inner": {"a": "A", "b": "B", "c": None}}]}]
        assert reads("id").scan() == grown

    @pytest.mark.parametrize(
        ("ddl", "key", "message"),
        [
            ("url STRING, count STRING", "url", "`count` was BIGINT and is STRING"),
            ("url STRING", "url", "`count` was BIGINT and is gone"),
            (COUNTS, "count", "its key was url and is count"),
        ],
    )
    def test_other_columns_are_refused(
        self, writer: OpenWriter, ddl: str, key: str, message: str
    ) -> None:
        writer("url").claim("counts", schema_of(COUNTS))
        with pytest.raises(ChangedView, match=message):
            writer(key).claim("counts", schema_of(ddl))

    # --- receipts -----------------------------------------------------------------------------

    def test_a_repeated_batch_changes_nothing(self, writer: OpenWriter, reader: ViewReads) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        assert store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        assert not store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 2)))
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        assert not store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 3)))
        assert row_of(reader, "/") == {"url": "/", "count": 1}

    def test_an_empty_batch_moves_the_position(self, write: Write, reader: ViewReads) -> None:
        assert write(rows(COUNTS))
        assert reader.position() == {"clicks": {0: 10, 1: 0}}
        assert write(rows(COUNTS))
        assert reader.position() == {"clicks": {0: 10, 1: 1}}

    def test_a_new_checkpoint_counts_from_zero(self, writer: OpenWriter, reader: ViewReads) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        store.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 1)))
        assert store.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 2)))
        assert row_of(reader, "/") == {"url": "/", "count": 2}

    def test_a_job_that_starts_over_leaves_no_rows_of_its_former_life(
        self, writer: OpenWriter, reader: ViewReads
    ) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1), ("/old", 1)))
        store.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 1)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_job_does_not_go_on_into_the_view_of_another_checkpoint(
        self, writer: OpenWriter, reader: ViewReads
    ) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        with pytest.raises(RowsLost, match=r"its job goes on with batch 7, but .* holds nothing"):
            store.write(receipt(epoch=epoch, batch=7, query="b"), rows(COUNTS, ("/", 9)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_job_does_not_go_on_into_a_view_that_was_lost(self, writer: OpenWriter) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        with pytest.raises(RowsLost, match=r"its job goes on with batch 7, but .* holds nothing"):
            store.write(receipt(epoch=epoch, batch=7), rows(COUNTS, ("/", 1)))

    def test_a_job_does_not_go_on_into_an_older_copy_of_its_view(
        self, writer: OpenWriter, reader: ViewReads
    ) -> None:
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        with pytest.raises(RowsLost, match=r"goes on with batch 3, but .* ends with batch 0"):
            store.write(receipt(epoch=epoch, batch=3), rows(COUNTS, ("/", 4)))
        assert reader.scan() == [{"url": "/", "count": 1}]
        assert store.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))

    @pytest.mark.parametrize("batch", [0, 1, 2])
    def test_a_batch_that_was_planned_again_over_other_records_is_refused(
        self, writer: OpenWriter, reader: ViewReads, batch: int
    ) -> None:
        """Files of the checkpoint are gone, or an older one was put back: Spark gives the number
        of a batch that the view has, or the next one, to other records."""
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        for number in (0, 1):
            store.write(receipt(epoch=epoch, batch=number), rows(COUNTS, ("/", number)))
        elsewhere = {"clicks": {0: 10, 1: 5_000}}
        again = replace(receipt(epoch=epoch, batch=batch), positions=elsewhere, start=elsewhere)
        with pytest.raises(PlannedAgain, match=r"holds batch 1, which has read up to clicks:0:10"):
            store.write(again, rows(COUNTS, ("/lost", 1)))
        assert reader.scan() == [{"url": "/", "count": 1}]
        assert reader.position() == {"clicks": {0: 10, 1: 1}}

    def test_a_number_that_was_no_batch_is_not_missed(self, writer: OpenWriter) -> None:
        """`millstream state repartition` takes one."""
        store = writer("url")
        epoch = store.claim("counts", schema_of(COUNTS))
        store.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        after_move = replace(receipt(epoch=epoch, batch=2), before=0)
        assert store.write(after_move, rows(COUNTS, ("/", 2)))
        assert not store.write(after_move, rows(COUNTS, ("/", 3)))

    # --- who writes ---------------------------------------------------------------------------

    def test_an_older_run_of_the_job_is_fenced(self, writer: OpenWriter, reader: ViewReads) -> None:
        zombie, store = writer("url"), writer("url")
        old = zombie.claim("counts", schema_of(COUNTS))
        new = store.claim("counts", schema_of(COUNTS))
        assert new > old
        with pytest.raises(Fenced, match="a newer run of it has started"):
            zombie.write(receipt(epoch=old, batch=0), rows(COUNTS, ("/", 666)))
        with pytest.raises(Fenced, match="a newer run of it has started"):
            zombie.serve()
        assert store.write(receipt(epoch=new, batch=0), rows(COUNTS, ("/", 1)))
        assert reader.scan() == [{"url": "/", "count": 1}]

    def test_a_run_that_rebuilds_is_fenced_by_a_newer_one(
        self, writer: OpenWriter, reader: ViewReads
    ) -> None:
        """Its last claim was for the former generation, which it keeps current meanwhile."""
        zombie, rebuilt, former = ViewHold(), writer("url", generation=2), writer("url")
        former.claim("counts", schema_of(COUNTS))
        zombie.claim(rebuilt, "counts", schema_of(COUNTS))
        old = zombie.claim(former, "counts", schema_of(COUNTS))
        rebuilt.write(receipt(epoch=old, batch=0, query="b"), rows(COUNTS, ("/", 666)))
        live = writer("url")
        epoch = live.claim("counts", schema_of(COUNTS))
        assert live.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        with pytest.raises(Fenced, match="a newer run of it has started"):
            zombie.serve(rebuilt)
        assert live.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        assert reader.scan() == [{"url": "/", "count": 2}]

    def test_a_run_serves_what_it_rebuilt_though_it_claimed_the_former_one_last(
        self, writer: OpenWriter, reader: ViewReads
    ) -> None:
        hold, rebuilt, former = ViewHold(), writer("url", generation=2), writer("url")
        former.claim("counts", schema_of(COUNTS))
        hold.claim(rebuilt, "counts", schema_of(COUNTS))
        epoch = hold.claim(former, "counts", schema_of(COUNTS))
        rebuilt.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 10)))
        hold.serve(rebuilt)
        assert rebuilt.write(receipt(epoch=epoch, batch=1, query="b"), rows(COUNTS, ("/", 11)))
        assert reader.scan() == [{"url": "/", "count": 11}]

    def test_a_view_has_one_job(self, writer: OpenWriter) -> None:
        writer("url").claim("counts", schema_of(COUNTS))
        with pytest.raises(OwnedByAnother, match="is written by job counts, not by other"):
            writer("url").claim("other", schema_of(COUNTS))

    def test_two_views_of_one_place_do_not_meet(self, store: OpenStore) -> None:
        opened = {name: store(key=["url"], view=name) for name in ("visits", "visits_2")}
        for name, one in opened.items():
            view = one.writer(1)
            epoch = view.claim(name, schema_of(COUNTS))
            view.write(receipt(epoch=epoch, batch=0, job=name), rows(COUNTS, (name, 1)))
            view.close()
        opened["visits"].drop()
        reads = opened["visits_2"].reader()
        assert reads.scan() == [{"url": "visits_2", "count": 1}]
        assert opened["visits"].generations() == []
        reads.close()

    # --- generations --------------------------------------------------------------------------

    def test_a_view_that_no_job_has_claimed_is_not_there(
        self, store: OpenStore, reader: ViewReads
    ) -> None:
        with pytest.raises(ViewNotFound, match="view counts is not there yet"):
            reader.scan()
        assert store(key=["url"]).generations() == []

    def test_the_first_generation_is_served_at_once(
        self, writer: OpenWriter, store: OpenStore, reader: ViewReads
    ) -> None:
        counts = writer("url")
        epoch = counts.claim("counts", schema_of(COUNTS))
        assert reader.scan() == []
        assert reader.position() == {}
        (found,) = store(key=["url"]).generations()
        assert (found.number, found.is_served, found.batch) == (1, True, None)
        counts.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        (found,) = store(key=["url"]).generations()
        assert (found.number, found.batch) == (1, 0)
        assert found.positions == {"clicks": {0: 10, 1: 0}}

    def test_a_rebuilt_view_is_read_once_it_is_served(
        self, writer: OpenWriter, reads: OpenReads
    ) -> None:
        old, new, reader = writer("url"), writer("n", generation=2), reads("url")
        epoch = old.claim("counts", schema_of(COUNTS))
        old.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 2)))
        old.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 1)))
        epoch = new.claim("counts", schema_of("n INT, s STRING"))
        new.write(receipt(epoch=epoch, batch=0, query="b"), rows("n INT, s STRING", (1, "x")))
        assert reader.scan() == [{"url": "/", "count": 1}]
        assert reader.position() == {"clicks": {0: 10, 1: 1}}
        assert reads("n", generation=2).scan() == [{"n": 1, "s": "x"}]
        with pytest.raises(Fenced):
            old.serve()
        new.serve()
        assert reader.scan() == [{"n": 1, "s": "x"}]
        assert reader.position() == {"clicks": {0: 10, 1: 0}}
        assert reader.key == ("n",)

    def test_one_run_writes_two_generations_side_by_side(
        self, writer: OpenWriter, store: OpenStore, reader: ViewReads
    ) -> None:
        """The old one stays current while the new one grows: the newest epoch is of both."""
        old, new = writer("url"), writer("url", generation=2)
        old.claim("counts", schema_of(COUNTS))
        epoch = new.claim("counts", schema_of(COUNTS))
        assert old.write(receipt(epoch=epoch, batch=0), rows(COUNTS, ("/", 1)))
        assert new.write(receipt(epoch=epoch, batch=0, query="b"), rows(COUNTS, ("/", 10)))
        assert old.write(receipt(epoch=epoch, batch=1), rows(COUNTS, ("/", 2)))
        assert reader.scan() == [{"url": "/", "count": 2}]
        new.serve()
        assert reader.scan() == [{"url": "/", "count": 10}]
        assert old.write(receipt(epoch=epoch, batch=2), rows(COUNTS, ("/", 3)))
        assert reader.scan() == [{"url": "/", "count": 10}]
        assert [one.batch for one in store(key=["url"]).generations()] == [2, 0]

    @pytest.fixture
    def rebuilt(self, writer: OpenWriter) -> dict[int, ViewWriter]:
        """Generations 1, 2 and 3 of the view, served one after the other; their rows say which."""
        made = {}
        for number in (1, 2, 3):
            made[number] = writer("url", generation=number)
            epoch = made[number].claim("counts", schema_of(COUNTS))
            batch = receipt(epoch=epoch, batch=0, query=f"q{number}")
            made[number].write(batch, rows(COUNTS, ("/", number)))
            made[number].serve()
        return made

    def test_the_generation_before_is_kept(
        self, rebuilt: object, store: OpenStore, reader: ViewReads
    ) -> None:
        found = store(key=["url"]).generations()
        assert [(one.number, one.is_served) for one in found] == [(2, False), (3, True)]
        assert row_of(reader, "/") == {"url": "/", "count": 3}

    def test_serving_again_changes_nothing(
        self, rebuilt: dict[int, ViewWriter], store: OpenStore
    ) -> None:
        """A run may end between serving and its note of it."""
        rebuilt[3].serve()
        assert [one.number for one in store(key=["url"]).generations()] == [2, 3]

    def test_a_view_can_be_rolled_back_and_go_on(
        self, rebuilt: object, store: OpenStore, writer: OpenWriter, reader: ViewReads
    ) -> None:
        store(key=["url"]).serve(2)
        assert row_of(reader, "/") == {"url": "/", "count": 2}
        found = store(key=["url"]).generations()
        assert [(one.number, one.is_served) for one in found] == [(2, True), (3, False)]
        again = writer("url", generation=2)
        epoch = again.claim("counts", schema_of(COUNTS))
        again.write(receipt(epoch=epoch, batch=1, query="q2"), rows(COUNTS, ("/", 22)))
        assert row_of(reader, "/") == {"url": "/", "count": 22}

    def test_a_generation_that_is_not_there_cannot_be_served(
        self, rebuilt: object, store: OpenStore, reader: ViewReads
    ) -> None:
        with pytest.raises(NoSuchGeneration, match=r"view counts has no generation 1 .*2, 3"):
            store(key=["url"]).serve(1)
        assert row_of(reader, "/") == {"url": "/", "count": 3}

    def test_a_generation_that_is_not_served_can_be_dropped(
        self, rebuilt: object, store: OpenStore, reader: ViewReads
    ) -> None:
        with pytest.raises(GenerationServed, match="generation 3 is the one that readers see"):
            store(key=["url"]).drop(3)
        with pytest.raises(NoSuchGeneration, match="view counts has no generation 7"):
            store(key=["url"]).drop(7)
        store(key=["url"]).drop(2)
        assert [one.number for one in store(key=["url"]).generations()] == [3]
        assert row_of(reader, "/") == {"url": "/", "count": 3}

    def test_a_view_that_was_dropped_is_not_there_and_free_for_another_job(
        self, rebuilt: object, store: OpenStore, writer: OpenWriter, reads: OpenReads
    ) -> None:
        store(key=["url"]).drop()
        assert store(key=["url"]).generations() == []
        with pytest.raises(ViewNotFound):
            reads("url").scan()
        other = writer("url")
        epoch = other.claim("other", schema_of(COUNTS))
        other.write(receipt(epoch=epoch, batch=0, job="other"), rows(COUNTS, ("/", 1)))
        assert reads("url").scan() == [{"url": "/", "count": 1}]

    def test_a_reader_that_stays_open_sees_the_view_that_is_made_anew(
        self, writer: OpenWriter, store: OpenStore, reader: ViewReads
    ) -> None:
        former = [(f"/old{number}", number) for number in range(20)]
        for query, found in (("a", former), ("b", [("/new", 1)])):
            counts = writer("url")
            epoch = counts.claim("counts", schema_of(COUNTS))
            counts.write(receipt(epoch=epoch, batch=0, query=query), rows(COUNTS, *found))
            assert reader.count() == len(found)
            counts.close()
            if query == "a":
                store(key=["url"]).drop()
        assert reader.scan() == [{"url": "/new", "count": 1}]
        assert reader.get_many(["/new", "/old1"]) == [{"url": "/new", "count": 1}, None]

    def test_a_view_that_is_not_there_can_be_dropped(self, store: OpenStore) -> None:
        store(key=["url"]).drop()
        assert store(key=["url"]).generations() == []


def zero_of(kind: str, number: float) -> Any:
    if kind.startswith("ARRAY"):
        return [number, None]
    return {"x": number} if kind.startswith("STRUCT") else number


# A column's name, its type, and two values of it.
TYPES: tuple[tuple[str, str, Any, Any], ...] = (
    ("a", "BOOLEAN", True, False),
    ("b", "TINYINT", 127, -128),
    ("c", "SMALLINT", 32767, -32768),
    ("d", "BIGINT", (1 << 63) - 1, -(1 << 63)),
    ("e", "FLOAT", 1.5, -1.5),
    ("f", "DOUBLE", 1.7976931348623157e308, 5e-324),
    ("g", "STRING", "Ägypten 🐫 end", ""),
    ("h", "BINARY", bytes(range(256)), b""),
    ("i", "DATE", date(9999, 12, 31), date(1, 1, 1)),
    (
        "j",
        "TIMESTAMP",
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ),
    ("k", "TIMESTAMP_NTZ", datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1)),
    (
        "l",
        "DECIMAL(38, 10)",
        Decimal("9999999999999999999999999999.9999999999"),
        Decimal("-0.0000000001"),
    ),
    ("m", "ARRAY<DECIMAL(5, 2)>", [Decimal("999.99"), None], []),
    ("n", "MAP<DATE, TIMESTAMP>", {date(2026, 1, 1): NOON, date(2026, 1, 2): None}, {}),
    (
        "o",
        "STRUCT<x: STRUCT<y: BINARY>, z: ARRAY<STRUCT<t: DATE, u: DOUBLE>>>",
        {"x": {"y": b"\xff"}, "z": [{"t": date(2026, 1, 1), "u": 0.1}, None]},
        {"x": None, "z": []},
    ),
)
