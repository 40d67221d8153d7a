"""Times as scripts write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from millstream.processing.steps.moments import BadMoment, moment, shown_moment, with_moments
from millstream.schemas.ddl import schema_from_ddl

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "given",
    ["12:00", "12:00:00.000", "2026-01-01T12:00:00Z", "2026-01-01T14:00+02:00", NOON],
)
def test_noon_can_be_written_in_many_ways(given: str | datetime) -> None:
    assert moment(given) == NOON


def test_a_time_without_a_zone_is_utc() -> None:
    assert moment(datetime(2026, 1, 1, 12)) == NOON


@pytest.mark.parametrize("given", ["noon", "25:00", "12:0", ""])
def test_what_is_no_time_is_refused(given: str) -> None:
    with pytest.raises(BadMoment, match="write '12:10'"):
        moment(given)


def test_times_are_found_wherever_the_schema_has_them() -> None:
    schema = schema_from_ddl(
        "at TIMESTAMP, name STRING, w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, "
        "all ARRAY<TIMESTAMP>"
    )
    row = {"at": "12:00", "name": "12:00", "w": ("12:00", None), "all": ["12:00"], "other": "12:00"}
    assert with_moments(row, schema) == {
        "at": NOON,
        "name": "12:00",
        "w": {"start": NOON, "end": None},
        "all": [NOON],
        "other": "12:00",
    }


@pytest.mark.parametrize("text", ["12:10", "12:10:05", "12:10:05.250000", "2027-01-01T00:00:00Z"])
def test_a_moment_is_shown_as_it_is_written(text: str) -> None:
    assert shown_moment(moment(text)) == text


def test_a_moment_of_another_zone_is_shown_in_utc() -> None:
    assert shown_moment(NOON.astimezone(timezone(timedelta(hours=5)))) == "12:00"
