"""What can be written into a topic."""

import pytest

from millstream.processing.writing.topic_write import BadWrite, TopicWrite, require_writable

WRITE = TopicWrite(brokers="h:1", job="totals", topic="out", epoch=3, client={"acks": "all"})


@pytest.mark.parametrize("job", ["", "a b", "x" * 201, "ä"])
def test_a_job_has_a_name_that_a_topic_could_have(job: str) -> None:
    with pytest.raises(BadWrite, match="give letters"):
        TopicWrite(brokers="h:1", job=job)


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
