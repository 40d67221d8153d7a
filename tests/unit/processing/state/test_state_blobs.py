"""Blobs of the state as people can read them."""

import os
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from millstream.processing.jobs.plan_shape import PlanShape
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
