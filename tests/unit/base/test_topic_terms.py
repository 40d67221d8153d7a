"""A topic that exists, beside what it must be: refused, warned of, or fine."""

from collections.abc import Mapping

import pytest

from millstream.base.topic_terms import COMPACTED, TopicTerms, UnfitTopic, differences, judged

WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
FOR_EVER = WEEK | {"retention.ms": "-1"}
KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("wanted", "found", "loses"),
    [
        (COMPACTED, WEEK, True),
        (COMPACTED, WEEK | {"cleanup.policy": "compact,delete"}, True),
        (COMPACTED, WEEK | {"cleanup.policy": "delete, compact"}, True),
        (COMPACTED, FOR_EVER | {"retention.bytes": "1000"}, True),
        (COMPACTED, FOR_EVER, False),  # it grows, and keeps all rows
        (KEPT, WEEK, True),
        (KEPT, FOR_EVER | {"retention.bytes": "1000"}, True),
        (KEPT, FOR_EVER | {"cleanup.policy": "compact"}, True),
        ({"retention.ms": "-1"}, FOR_EVER | {"cleanup.policy": "compact"}, True),
        ({"max.message.bytes": "9000"}, {"max.message.bytes": "1000"}, False),
        ({"delete.retention.ms": "-1"}, {"delete.retention.ms": "1000"}, False),
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, False),
    ],
)
def test_a_topic_that_differs_is_found(
    wanted: Mapping[str, str], found: Mapping[str, str], loses: bool
) -> None:
    assert any(one.loses for one in differences(wanted, found)) is loses
    assert differences(wanted, found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (COMPACTED, {"cleanup.policy": "compact", "retention.ms": "604800000"}),
        (KEPT, FOR_EVER),
        ({}, WEEK),
        ({"max.message.bytes": "9000"}, {"max.message.bytes": "9001"}),
        ({"retention.ms": "1000"}, {"retention.ms": "-1"}),
        ({"segment.bytes": "1"}, {"segment.bytes": "2"}),  # nobody sees it
        ({"errors.unknown": "1"}, {}),  # the broker does not know it
    ],
)
def test_a_topic_that_keeps_more_than_is_asked_for_is_fine(
    wanted: Mapping[str, str], found: Mapping[str, str]
) -> None:
    assert differences(wanted, found) == []


def test_a_table_that_is_not_compacted_is_refused_with_the_command_that_fixes_it() -> None:
    terms = TopicTerms(name="people", config=COMPACTED, holds="rows of table people")
    with pytest.raises(UnfitTopic) as refused:
        judged(terms, partitions=1, config=WEEK)
    text = str(refused.value)
    assert text.startswith("Topic people is not compacted (cleanup.policy=delete)")
    assert "would remove rows of table people" in text
    assert "`millstream topics alter people --config cleanup.policy=compact`" in text


def test_a_topic_that_is_not_needed_is_only_warned_of() -> None:
    terms = TopicTerms(name="a.dead", config={"retention.ms": "-1"}, is_needed=False)
    [warning] = judged(terms, partitions=1, config=WEEK)
    assert warning.endswith("Run `millstream topics alter a.dead --config retention.ms=-1`")


@pytest.mark.parametrize(
    ("found", "told"), [(1, "add-partitions people --to 3"), (7, "declare partitions=7")]
)
def test_other_partitions_than_declared_are_warned_of(found: int, told: str) -> None:
    terms = TopicTerms(name="people", config=COMPACTED, partitions=3)
    [warning] = judged(terms, partitions=found, config=COMPACTED)
    assert f"has {found} partition" in warning
    assert told in warning
