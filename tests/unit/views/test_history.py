"""Views as they were: at a version, at a time, and what is told of moments that are not kept."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.base.ports import BatchReceipt
from millstream.base.quantity import DAY_MS, MINUTE_MS
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import schema_of
from millstream.views.history import (
    FEED_KEPT_MS,
    HISTORY_MS_MAX,
    BadHistory,
    Keeping,
    NoHistory,
    OutsideHistory,
    time_ms_of,
)
from millstream.views.stores.sqlite.history import COLUMNS_MAX
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from millstream.views.table_layout import BadView
from tests.support.view_job import ViewJob

START = datetime(2026, 7, 1, 12, tzinfo=UTC)


class Ticking:
    """A clock that is set by hand, in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = time_ms_of(START)

    def __call__(self) -> int:
        return self.now_ms

    def pass_minutes(self, count: float) -> None:
        self.now_ms += int(count * MINUTE_MS)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counts.sqlite"


@pytest.fixture
def job(path: Path, clock: Ticking) -> Iterator[ViewJob]:
    with ViewJob(path, history_ms=DAY_MS, clock=clock) as job:
        yield job


@pytest.fixture
def reader(path: Path) -> Iterator[ViewReader]:
    with ViewReader(path, view="counts") as reader:
        yield reader


def counts(reader: ViewReader, **asked: Any) -> dict[str, int]:
    with reader.as_of(**asked) as past:
        return {row["url"]: row["count"] for row in past.scan()}


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def test_every_version_can_be_read(job: ViewJob, reader: ViewReader) -> None:
    job.put({"/": 1, "/a": 1})
    job.put({"/": 2, "/b": 1})
    job.put({"/a": None})
    job.put({"/a": 5, "/b": None})
    assert [counts(reader, version=version) for version in range(5)] == [
        {},
        {"/": 1, "/a": 1},
        {"/": 2, "/a": 1, "/b": 1},
        {"/": 2, "/b": 1},
        {"/": 2, "/a": 5},
    ]


def test_a_time_is_the_last_version_that_was_there(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    clock.pass_minutes(10)
    job.put({"/": 2})
    job.put({"/": 3})
    assert counts(reader, time=at(0)) == {"/": 1}
    assert counts(reader, time=at(9.99)) == {"/": 1}
    assert counts(reader, time=at(10)) == {"/": 3}
    assert counts(reader, time=at(10_000)) == {"/": 3}


def test_a_version_begins_when_its_batch_is_done_however_long_it_took(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    assert job.writer._db is not None
    job.writer._db.set_trace_callback(lambda statement: clock.pass_minutes(1))
    job.put({"/": 2})
    done_ms, last = clock.now_ms, reader.versions().last
    stamped_and_committed = 2 * MINUTE_MS
    assert last.number == 2
    assert done_ms - last.at_ms <= stamped_and_committed < done_ms - time_ms_of(START)
    assert counts(reader, time=at(0)) == {"/": 1}


@pytest.mark.parametrize("version", [3, 2**63, -(2**80)])
def test_a_version_that_never_was_is_outside_the_history(
    job: ViewJob, reader: ViewReader, version: int
) -> None:
    job.put({"/": 1})
    with pytest.raises(OutsideHistory, match="kept is version 0"):
        reader.as_of(version=version)


def test_the_past_answers_every_question(job: ViewJob, reader: ViewReader) -> None:
    job.put({"/": 1, "/a": 2, "/b": 3})
    job.put({"/": 9, "/a": None, "/c": 4})
    with reader.as_of(version=1) as past:
        assert past.get("/") == {"url": "/", "count": 1}
        assert past.get_many(["/a", "/c"]) == [{"url": "/a", "count": 2}, None]
        assert [row["url"] for row in past.range("/a", "/c")] == ["/a", "/b"]
        assert [row["url"] for row in past.scan(where={"count >=": 2}, order_by="-count")] == [
            "/b",
            "/a",
        ]
        assert past.count() == 3
        assert past.position() == {"clicks": {0: 0}}
        assert past.key == ("url",)
    assert reader.position() == {"clicks": {0: 1}}


def test_a_moment_stays_as_it_was_while_the_view_moves_on(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    with reader.as_of(time=at(1_000)) as past:
        for count in range(2, 5):
            clock.pass_minutes(1)
            job.put({"/": count})
            assert past.get("/") == {"url": "/", "count": 1}


def test_the_whole_span_is_kept_and_no_more(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    for hour in range(30):
        job.put({"/": hour, f"/{hour}": hour})
        clock.pass_minutes(60)
    span = reader.versions()
    assert (span.first.number, span.last.number) == (6, 30)
    assert counts(reader, time=at(29 * 60 - 24 * 60))["/"] == 5, "a day before the last batch"
    with pytest.raises(OutsideHistory, match=r"as of version 5: kept is version 6 .* to 30"):
        reader.as_of(version=5)
    with pytest.raises(OutsideHistory, match="2026-07-01 16:59"):
        reader.as_of(time=at(299))
    with pytest.raises(OutsideHistory, match="the current one"):
        reader.as_of(version=31)


def test_a_moment_that_is_no_longer_kept_says_so(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    with reader.as_of(version=1) as past:
        for count in (2, 3):
            clock.pass_minutes(25 * 60)
            job.put({"/": count})
        with pytest.raises(OutsideHistory, match="kept is version 2"):
            past.get("/")


def test_a_view_without_history_says_how_to_get_one(path: Path, reader: ViewReader) -> None:
    with ViewJob(path) as job:
        job.put({"/": 1})
        with pytest.raises(NoHistory, match='history="7 days"'):
            reader.as_of(version=1)


def test_a_history_that_is_declared_later_begins_then(path: Path, reader: ViewReader) -> None:
    clock = Ticking()
    with ViewJob(path, clock=clock) as job:
        job.put({"/": 1})
        clock.pass_minutes(60)
        job.put({"/": 2})
        clock.pass_minutes(60)
        job.put({"/": 3})
    with ViewJob(path, batch=3, history_ms=DAY_MS, clock=clock) as job:
        clock.pass_minutes(60)
        job.put({"/": 4})
        assert counts(reader, version=2) == {"/": 2}
        with pytest.raises(OutsideHistory):
            reader.as_of(version=1)


def test_without_history_changes_are_kept_for_feeds_alone(path: Path, reader: ViewReader) -> None:
    clock = Ticking()
    with ViewJob(path, clock=clock) as job:
        for minute in range(60):
            job.put({"/": minute})
            clock.pass_minutes(1)
    span = reader.versions()
    assert span.last.at_ms - span.first.at_ms == FEED_KEPT_MS


def test_a_clock_that_is_set_back_loses_nothing(
    job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    clock.pass_minutes(-30 * 24 * 60)
    job.put({"/": 2})
    assert counts(reader, version=1) == {"/": 1}
    assert counts(reader, time=START) == {"/": 2}


def test_a_past_of_another_generation_is_not_mixed_in(
    path: Path, job: ViewJob, reader: ViewReader, clock: Ticking
) -> None:
    job.put({"/": 1})
    job.put({"/": 2})
    with reader.as_of(version=1) as past:
        with ViewJob(path, generation=2, query="b", history_ms=DAY_MS, clock=clock) as rebuilt:
            rebuilt.put({"/": 10})
            rebuilt.put({"/": 20})
            rebuilt.serve()
        assert past.get("/") == {"url": "/", "count": 1}, "the former one is kept beside it"
    assert counts(reader, version=1) == {"/": 10}


def test_columns_that_came_later_are_null_in_the_past(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    narrow, wide = schema_of("id INT, n INT"), schema_of("id INT, s STRUCT<a: INT>, n BIGINT")
    store = SqliteView(path, view="items", key=["id"], keeping=Keeping(history_ms=DAY_MS))
    for batch, (schema, row) in enumerate(
        [(narrow, {"id": 1, "n": 1}), (wide, {"id": 1, "s": {"a": 1}, "n": 2})]
    ):
        epoch = store.claim("items", schema)
        receipt = BatchReceipt(job="items", epoch=epoch, query="a", batch=batch)
        store.write(receipt, pa.Table.from_pylist([row], nullable_arrow_schema(schema)))
    store.close()
    with ViewReader(path, view="items") as reader, reader.as_of(version=1) as past:
        assert past.scan() == [{"id": 1, "s": None, "n": 1}]
        assert reader.scan() == [{"id": 1, "s": {"a": 1}, "n": 2}]


def test_columns_may_be_named_like_anything(tmp_path: Path) -> None:
    path = tmp_path / "items.sqlite"
    schema = schema_of("seq INT, version INT, is_new INT, deleted INT, place INT, id INT, r INT")
    store = SqliteView(path, view="items", key=["seq"], keeping=Keeping(history_ms=DAY_MS))
    epoch = store.claim("items", schema)
    rows = [dict.fromkeys(("seq", "version", "is_new", "deleted", "place", "id", "r"), 1)]
    for batch in (0, 1):
        receipt = BatchReceipt(job="items", epoch=epoch, query="a", batch=batch)
        rows = [row | {"deleted": batch} for row in rows]
        store.write(receipt, pa.Table.from_pylist(rows, nullable_arrow_schema(schema)))
    store.close()
    with ViewReader(path, view="items") as reader, reader.as_of(version=1) as past:
        assert past.scan() == [rows[0] | {"deleted": 0}]


def test_the_widest_view_is_kept_with_its_changes(tmp_path: Path) -> None:
    with wide_view(tmp_path / "wide.sqlite", COLUMNS_MAX) as reader:
        assert reader.versions().last.number == 2
        with reader.as_of(version=1) as past:
            assert set(past.scan()[0].values()) == {0, 1}


def test_a_wider_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadView, match="999 columns"):
        wide_view(tmp_path / "wide.sqlite", COLUMNS_MAX + 1)


def wide_view(path: Path, width: int) -> ViewReader:
    """One row, whose values are 1 first and then 2."""
    schema = schema_of(", ".join(f"c{number} INT" for number in range(width)))
    with contextlib.closing(
        SqliteView(path, view="wide", key=["c0"], keeping=Keeping(history_ms=DAY_MS))
    ) as store:
        epoch = store.claim("wide", schema)
        for batch in (0, 1):
            receipt = BatchReceipt(job="wide", epoch=epoch, query="a", batch=batch)
            row = {field.name: batch + 1 for field in schema} | {"c0": 0}
            store.write(receipt, pa.Table.from_pylist([row], nullable_arrow_schema(schema)))
    return ViewReader(path, view="wide")


def test_a_moment_is_asked_for_in_one_way(job: ViewJob, reader: ViewReader) -> None:
    with pytest.raises(BadHistory, match="a version or a time"):
        reader.as_of()
    with pytest.raises(BadHistory, match="a version or a time"):
        reader.as_of(version=1, time=START)
    with pytest.raises(BadHistory, match="has no time zone"):
        reader.as_of(time=datetime(2026, 7, 1))


@pytest.mark.parametrize("history_ms", [0, -1, HISTORY_MS_MAX + 1])
def test_a_history_that_means_nothing_is_refused(history_ms: int) -> None:
    with pytest.raises(BadHistory):
        Keeping(history_ms=history_ms)
