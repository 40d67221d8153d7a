"""Reads of rows in Arrow: what is loaded when, and how little is looked at."""

from typing import Any

import pyarrow as pa
import pytest

from millstream.schemas.declaration import schema_of
from millstream.views.store import BadQuestion, ViewReads
from millstream.views.stores.arrow_reads import ArrowReads, Loaded

SCHEMA = schema_of("url STRING, count BIGINT")


def loaded(*found: tuple[str, int], position: int = 1) -> Loaded:
    table = pa.table({"url": [row[0] for row in found], "count": [row[1] for row in found]})
    positions = {"clicks": {0: position}}
    return Loaded(schema=SCHEMA, key=("url",), table=table, positions=positions)


class Served:
    """A store whose rows are what a test says."""

    def __init__(self, now: Loaded) -> None:
        self.now = now
        self.is_closed = False

    def load(self) -> Loaded:
        return self.now

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def served() -> Served:
    return Served(loaded(("/b", 2), ("/", 3), ("/c", 1), ("/a", 2)))


@pytest.fixture
def reads(served: Served) -> ViewReads:
    return ArrowReads("counts", served.load, close=served.close)


def urls(found: list[dict[str, Any]]) -> list[str]:
    return [row["url"] for row in found]


def test_keys_are_found(reads: ViewReads) -> None:
    assert reads.get_many(["/c", "/x", {"url": "/"}]) == [
        {"url": "/c", "count": 1},
        None,
        {"url": "/", "count": 3},
    ]
    assert (reads.schema, reads.key, reads.count()) == (SCHEMA, ("url",), 4)


def test_ranges_hold_both_ends(reads: ViewReads) -> None:
    assert urls(reads.range()) == ["/", "/a", "/b", "/c"]
    assert urls(reads.range("/a", "/b")) == ["/a", "/b"]
    assert urls(reads.range("/0", "/bb", limit=1)) == ["/a"]
    assert urls(reads.range(last="/")) == ["/"]
    assert urls(reads.range("/c", "/a")) == []


def test_scans_filter_sort_and_end(reads: ViewReads) -> None:
    assert urls(reads.scan(where={"count": 2})) == ["/a", "/b"]
    assert urls(reads.scan(order_by="-count", limit=3)) == ["/", "/a", "/b"]
    with pytest.raises(BadQuestion, match="view counts has no column user"):
        reads.scan(where={"user": 1})


def test_each_question_is_of_what_is_served_then(served: Served, reads: ViewReads) -> None:
    assert reads.position() == {"clicks": {0: 1}}
    served.now = loaded(("/", 9), position=2)
    assert reads.scan() == [{"url": "/", "count": 9}]
    assert reads.position() == {"clicks": {0: 2}}


def test_a_moment_stays_what_it_was(served: Served) -> None:
    with ArrowReads("counts", served.load).moment() as now:
        served.now = loaded(("/", 9), position=2)
        assert now.count() == 4
        assert now.position() == {"clicks": {0: 1}}


def test_rows_are_put_in_order_once(served: Served) -> None:
    reads = ArrowReads("counts", served.load)
    assert reads.arrow() is reads.arrow()


def test_the_store_is_closed_with_it(served: Served, reads: ViewReads) -> None:
    reads.close()
    assert served.is_closed


def test_no_rows_are_no_trouble() -> None:
    reads = ArrowReads("counts", lambda: EMPTY)
    assert (reads.get_many(["/"]), reads.scan(order_by="count"), reads.range("/")) == (
        [None],
        [],
        [],
    )


EMPTY = Loaded(
    schema=SCHEMA,
    key=("url",),
    table=pa.table({"url": pa.array([], pa.string()), "count": pa.array([], pa.int64())}),
)
