"""What can be written into a topic."""

import pytest

from millstream.processing.writing.topic_write import (
    BadWrite,
    TopicWrite,
    options_of,
    require_writable,
    write_from,
)

WRITE = TopicWrite(brokers="h:1", job="totals", topic="out", epoch=3, client={"acks": "all"})


def test_a_write_survives_its_options() -> None:
    assert write_from(options_of(WRITE)) == WRITE


@pytest.mark.parametrize("job", ["", "a b", "x" * 201, "ä"])
def test_a_job_has_a_name_that_a_topic_could_have(job: str) -> None:
    with pytest.raises(BadWrite, match="give letters"):
        TopicWrite(brokers="h:1", job=job)


def test_options_that_are_unknown_or_missing_are_named() -> None:
    with pytest.raises(BadWrite, match="unknown option colour"):
        write_from({**options_of(WRITE), "colour": "red"})
    with pytest.raises(BadWrite, match="epoch is missing"):
        write_from({"brokers": "h:1", "job": "totals"})


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"key": "string"}, "need a column `value`"),
        ({"value": "bigint"}, "column value is bigint"),
        ({"value": "binary", "total": "bigint"}, "column total cannot be written"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_the_first_batch(
    columns: dict[str, str], problem: str
) -> None:
    with pytest.raises(BadWrite, match=problem):
        require_writable(WRITE, columns)


def test_rows_name_their_topic_or_the_write_does() -> None:
    nowhere = TopicWrite(brokers="h:1", job="totals")
    require_writable(nowhere, {"value": "binary", "topic": "string"})
    with pytest.raises(BadWrite, match="say which topic"):
        require_writable(nowhere, {"value": "binary"})
