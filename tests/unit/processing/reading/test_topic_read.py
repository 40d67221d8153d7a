"""What to read, as a value and as Spark's options."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from millstream.base.declared import EventTime
from millstream.base.errors import Rejected
from millstream.processing.reading.places import (
    AtOffsets,
    AtTime,
    BadPlace,
    Earliest,
    Latest,
    parse_place,
    place_text,
)
from millstream.processing.reading.topic_read import BadReadOption, TopicRead, options_of, read_from

NOON_MS = round(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("2026-07-01T12:00Z", AtTime(NOON_MS)),
        ("2026-07-01T14:00+02:00", AtTime(NOON_MS)),
        ("2026-07-01 12:00", AtTime(NOON_MS)),
        ('{"orders": {"0": 12}}', AtOffsets({"orders": {0: 12}})),
    ],
)
def test_a_place_is_read_from_text(text: str, place: object) -> None:
    assert parse_place(text, option="starting") == place


@pytest.mark.parametrize("text", ["", "soon", "{", '{"orders": 3}', '{"orders": {"a": 1}}', "12"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadPlace, match="starting: cannot read"):
        parse_place(text, option="starting")


@pytest.mark.parametrize(
    "place", [Earliest(), Latest(), AtTime(NOON_MS + 7), AtOffsets({"orders": {0: 12, 3: 4}})]
)
def test_a_place_survives_its_text(place: AtTime) -> None:
    assert parse_place(place_text(place), option="starting") == place


def test_a_moment_means_the_same_in_every_zone() -> None:
    there = datetime(2026, 7, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert parse_place(place_text(there), option="starting") == AtTime(NOON_MS)


def test_a_misspelt_topic_is_not_read_whole() -> None:
    with pytest.raises(BadReadOption, match="ordres"):
        TopicRead(brokers="h:1", topics=("orders",), starting='{"ordres": {"0": 12}}')


def test_a_read_survives_its_options() -> None:
    read = TopicRead(
        brokers="h:1",
        topics=("a", "b"),
        starting="2026-07-01T12:00Z",
        read_committed=False,
        records_max=5,
        bytes_max=6,
        tasks_min=2,
        columns=("offset",),
        on_loss="skip",
        on_bad="fail",
        job="totals",
        table_key=("id", "odd, name"),
        event_time=EventTime(column="at", late="correct", idle_ms=None),
        beats=True,
        checkpoint="file:///tmp/a",
        run="r1",
        source="orders",
        client={"security.protocol": "ssl"},
    )
    assert read_from(options_of(read)) == read


def test_options_are_few_for_who_needs_few() -> None:
    assert read_from({"brokers": "h:1", "path": "orders"}) == TopicRead(
        brokers="h:1", topics=("orders",)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "orders"},
        {"brokers": "h:1"},
        {"brokers": "h:1", "topics": "a", "pattern": "b.*"},
        {"brokers": "h:1", "topics": "a", "startingoffsets": "earliest"},
        {"brokers": "h:1", "topics": "a", "records_max": "many"},
        {"brokers": "h:1", "topics": "a", "records_max": "0"},
        {"brokers": "h:1", "topics": "a", "read_committed": "perhaps"},
        {"brokers": "h:1", "topics": "a", "columns": "key,colour"},
        {"brokers": "h:1", "topics": "a", "on_loss": "shrug"},
        {"brokers": "h:1", "topics": "a", "starting": "soon"},
        {"brokers": "h:1", "topics": "a", "event_time": "at"},
        {"brokers": "h:1", "topics": "a", "event_time": '{"of": "at"}'},
        {"brokers": "h:1", "topics": "a", "event_time": '{"column": "at", "late": "never"}'},
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(options: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        read_from(options)


def test_an_unknown_option_names_those_that_are_known() -> None:
    with pytest.raises(BadReadOption, match="known are brokers, topics"):
        read_from({"brokers": "h:1", "topics": "a", "startingoffsets": "earliest"})
