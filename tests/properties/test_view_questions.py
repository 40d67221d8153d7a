"""Every store answers a question as the naive reading of all rows in Python does."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.base.ports import BatchReceipt
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import schema_of
from millstream.views.store import Row, ViewReads
from millstream.views.stores.arrow_reads import ArrowReads, Loaded
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from millstream.views.table_layout import view_layout
from tests.support.naive_view import NaiveView, shown

DDL = """
    s STRING, x DOUBLE, b BINARY, d DECIMAL(6, 2), w STRUCT<start: TIMESTAMP, end: TIMESTAMP>,
    n BIGINT, f FLOAT, t STRING, c DATE, ok BOOLEAN, l ARRAY<INT>, p STRUCT<q: STRING>
"""
SCHEMA = schema_of(DDL)
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)

texts = st.text(alphabet="ab\x00é\ud7ff\ue000\U0010ffff", max_size=3)
doubles = st.sampled_from([0.0, 1.5, -2.0, math.nan, math.inf, -math.inf])
decimals = st.sampled_from(["-10.00", "-9.50", "0.00", "9.50", "10.00"]).map(Decimal)
times = st.integers(0, 3).map(lambda minutes: NOON + timedelta(minutes=minutes))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": texts,
    "x": doubles,
    "b": st.binary(max_size=2),
    "d": decimals,
    "w.start": times,
    "w.end": times,
    "n": st.integers(-3, 3),
    "f": st.sampled_from([0.5, -0.5, math.nan]),
    "t": texts,
    "c": st.integers(0, 3).map(lambda days: date(2026, 7, 1) + timedelta(days=days)),
    "ok": st.booleans(),
    "l": st.lists(st.integers(0, 2), max_size=2),
    "p.q": texts,
}
ORDERED = [name for name in VALUES if name != "l"]
KEYS = [("s", "x"), ("b", "s"), ("d", "n"), ("w", "t"), ("x",), ("n", "b", "d")]
UNORDERED_KEYS = [("l", "n")]


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


windows = st.fixed_dictionaries({"start": maybe(times), "end": maybe(times)})
rows = st.fixed_dictionaries(
    {
        "s": maybe(VALUES["s"]),
        "x": maybe(VALUES["x"]),
        "b": maybe(VALUES["b"]),
        "d": maybe(VALUES["d"]),
        "w": windows,
        "n": maybe(VALUES["n"]),
        "f": maybe(VALUES["f"]),
        "t": maybe(VALUES["t"]),
        "c": maybe(VALUES["c"]),
        "ok": maybe(VALUES["ok"]),
        "l": maybe(VALUES["l"]),
        "p": maybe(st.fixed_dictionaries({"q": maybe(texts)})),
    }
)


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    where: dict[str, Any] = {}
    for column in draw(st.lists(st.sampled_from(list(VALUES)), max_size=2)):
        signs = ["", "!=", "in"] + ([] if column == "l" else ["<", "<=", ">", ">="])
        sign = draw(st.sampled_from([*signs, "starts with"] if column in "st" else signs))
        value = VALUES[column] if sign in ("<", "<=", ">", ">=", "starts with") else None
        one = maybe(VALUES[column]) if value is None else value
        where[f"{column} {sign}".strip()] = draw(st.lists(one, max_size=3) if sign == "in" else one)
    return where


orders = st.lists(
    st.builds(lambda sign, name: sign + name, st.sampled_from(["", "-"]), st.sampled_from(ORDERED)),
    max_size=2,
)


@contextmanager
def every_store(key: tuple[str, ...], found: list[Row]) -> Iterator[list[ViewReads]]:
    table = pa.Table.from_pylist(found, nullable_arrow_schema(SCHEMA))
    loaded = Loaded(schema=view_layout("v", SCHEMA, key).schema, key=key, table=table)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "v.sqlite"
        store = SqliteView(path, view="v", key=key)
        epoch = store.claim("v", SCHEMA)
        store.write(BatchReceipt(job="v", epoch=epoch, query="q", batch=0), table)
        with ViewReader(path, view="v") as reader:
            yield [reader, ArrowReads("v", lambda: loaded)]
        store.close()


@given(
    key=st.sampled_from(KEYS),
    found=st.lists(rows, max_size=12),
    where=conditions(),
    order_by=orders,
    limit=st.none() | st.integers(0, 5),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_scan_is_the_same_everywhere(
    key: tuple[str, ...],
    found: list[Row],
    where: dict[str, Any],
    order_by: list[str],
    limit: int | None,
) -> None:
    naive = NaiveView(SCHEMA, key, found)
    expected = shown(naive.scan(where, order_by, limit))
    with every_store(key, naive.rows) as stores:
        for store in stores:
            got = store.scan(where=where, order_by=order_by, limit=limit)
            assert shown(got) == expected, store


@given(
    key=st.sampled_from(KEYS),
    found=st.lists(rows, min_size=1, max_size=12),
    data=st.data(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_range_is_the_same_everywhere(
    key: tuple[str, ...], found: list[Row], data: st.DataObject
) -> None:
    naive = NaiveView(SCHEMA, key, found)
    first, last = (
        tuple(
            data.draw(maybe(VALUES[column.name]))
            for column in naive.columns[: data.draw(st.integers(0, len(naive.columns)))]
        )
        for _ in range(2)
    )
    expected = shown(naive.range(first, last))
    with every_store(key, naive.rows) as stores:
        for store in stores:
            got = store.range(asked(key, first), asked(key, last))
            assert shown(got) == expected, store


def asked(key: tuple[str, ...], bound: tuple[Any, ...]) -> Any:
    """A window's parts belong together."""
    if not bound:
        return None
    return (bound[:2], *bound[2:]) if key[0] == "w" else bound


@given(key=st.sampled_from(KEYS + UNORDERED_KEYS), found=st.lists(rows, max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_row_is_found_by_its_key_and_whole_in_arrow(
    key: tuple[str, ...], found: list[Row]
) -> None:
    naive = NaiveView(SCHEMA, key, found)
    with every_store(key, naive.rows) as stores:
        for store in stores:
            keys = [tuple(row[name] for name in key) for row in naive.rows]
            got = store.get_many(keys)
            assert shown([row for row in got if row is not None]) == shown(naive.rows)
            table: pa.Table = store.arrow()  # type: ignore[attr-defined]  # both have it
            in_arrow = sorted(table.to_pylist(), key=naive.ranks)
            assert shown(in_arrow) == shown(naive.rows)
