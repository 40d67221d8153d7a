"""Blobs of the state as people can read them."""

import os
import pickle
from collections import deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql.types import Row, VariantVal

from millstream.processing.jobs.plan_shape import PlanShape
from millstream.processing.operators.aggregate_state import Weighted
from millstream.processing.state.plain_pickles import NotPlainState, dump_plain, load_plain
from millstream.processing.state.state_blobs import readable


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ((1, {"a": [None, True]}), [1, {"a": [None, True]}]),
        ({(1, "x"): {Decimal("1.50")}}, {"[1, 'x']": ["1.50"]}),
        (datetime(2026, 7, 1, tzinfo=UTC), "2026-07-01 00:00:00+00:00"),
        (datetime(2026, 7, 1, tzinfo=ZoneInfo("UTC")), "2026-07-01 00:00:00+00:00"),
        (PlanShape(sources={"a": "b"}).output, ""),
        ({"page": pickle.dumps([1])}, {"page": [1]}),
    ],
)
def test_plain_values_are_shown(kept: Any, shown: Any) -> None:
    assert readable({"value": {"blob": pickle.dumps(kept, 5)}}) == {"value": {"blob": shown}}


def test_our_own_values_are_shown_by_their_fields() -> None:
    kept = pickle.dumps(PlanShape(sources={"a": "b"}, output="x"), 5)
    assert readable(kept)["sources"] == {"a": "b"}


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [None, True, 2.5, b"x", "y"]},
        (Decimal("1.50"), Fraction(1, 3), timedelta(seconds=1), date(2026, 7, 1), time(12)),
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=2))),
        Row(a=1, b=Row("x")(2)),
        Row("a", "b"),
        {(1, "x"): {UUID(int=7)}},
        Weighted(1, "g", (1, 2), (3,)),
        PlanShape(sources={"a": "b"}),
        deque([1], maxlen=3),
    ],
)
def test_what_columns_hold_and_what_we_make_of_them_comes_back(value: Any) -> None:
    found = load_plain(dump_plain(value))
    assert (found, type(found)) == (value, type(value))


def test_a_variant_comes_back() -> None:
    found = load_plain(dump_plain(VariantVal(b"value", b"metadata")))
    assert (found.value, found.metadata) == (b"value", b"metadata")


def test_the_error_comes_out_of_another_process_as_it_is() -> None:
    error = NotPlainState(reason="os.system is not a plain type")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.reason) == (str(error), error.reason)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/millstream-evil",)


def test_a_blob_cannot_run_code() -> None:
    blob = pickle.dumps(Evil())
    assert readable(blob) == f"<{len(blob)} bytes>"
    assert not os.path.exists("/tmp/millstream-evil")


class Sly:
    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (ZoneInfo, "__subclasses__")


def test_a_blob_reaches_nothing_through_a_time_zone() -> None:
    blob = pickle.dumps(Sly())
    assert readable(blob) == f"<{len(blob)} bytes>"


def test_other_bytes_are_text_or_a_size() -> None:
    assert readable([b"text", b"\xff\xfe", b"\x80 no pickle."]) == [
        "text",
        "<2 bytes>",
        "<12 bytes>",
    ]
