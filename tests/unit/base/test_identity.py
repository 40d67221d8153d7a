"""Values that Spark takes for equal have one identity, others do not."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from millstream.base.identity import identity

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.5"), Decimal("1.500")),
        (Decimal("100"), Decimal("1E+2")),
        (Decimal("-0.00"), Decimal("0")),
        (0.0, -0.0),
        (float("nan"), -float("nan")),
        (NOON, NOON.astimezone(EAST)),
        ({"a": 1, "b": Decimal("2.0")}, {"a": 1, "b": Decimal("2")}),
        ([1, None], (1, None)),
    ],
)
def test_equal_values_have_one_identity(one: Any, other: Any) -> None:
    assert identity([one]) == identity([other])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b"], ["ab", ""]),
        (["a', 'b"], ["a", "b"]),
        ([None], ["None"]),
        ([b"a"], ["a"]),
        ([Decimal("1" * 37 + "0")], [Decimal("1" * 37 + "1")]),
        ([NOON], [NOON + timedelta(microseconds=1)]),
        ([date(2026, 7, 1)], [date(2026, 7, 2)]),
        ([{"a": None, "b": 1}], [{"a": 1, "b": None}]),
        ([[1], [2]], [[1, 2], []]),
    ],
)
def test_other_values_have_another(one: list[Any], other: list[Any]) -> None:
    assert identity(one) != identity(other)


def test_an_identity_is_kept_in_checkpoints_and_must_not_change() -> None:
    key = [7, "ada", None, True, 1.5, Decimal("2.50"), NOON, date(2026, 7, 1), b"\x00", {"a": [1]}]
    assert identity(key) == (
        "(7, 'ada', None, True, 1.5, '2.5', '2026-07-01T12:00:00+00:00', '2026-07-01', "
        "b'\\x00', ([1],))"
    )
