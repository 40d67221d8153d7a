"""The text: whole families, in slices, with a limit."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from millstream.broker.metrics import exposition
from millstream.broker.metrics.exposition import LEFT_OUT, Exposition
from tests.support.scrape import OPENMETRICS
from tests.support.served_node import ServedNode

SIZES = "millstream_partition_size_bytes"


def text_of(served: ServedNode, accept: str = "") -> str:
    return b"".join(Exposition(served.node, accept).slices()).decode()


def partitions_in(text: str) -> list[str]:
    """The partitions of topic `many` that have a size."""
    return [
        sample.labels["partition"]
        for family in plain_text(text)
        for sample in family.samples
        if sample.name == SIZES and sample.labels["topic"] == "many"
    ]


@pytest.mark.parametrize("slice_series", [1, 7, 1000])
def test_however_it_is_sliced_the_text_is_the_same(
    served: ServedNode, monkeypatch: pytest.MonkeyPatch, slice_series: int
) -> None:
    monkeypatch.setattr(exposition, "SLICE_SERIES", slice_series)
    served.create("many", 20)
    text = text_of(served)
    assert partitions_in(text) == [str(number) for number in range(20)]
    assert text.count(f"# TYPE {SIZES} gauge\n") == 1


def test_openmetrics_ends_once(served: ServedNode) -> None:
    text = text_of(served, OPENMETRICS)
    assert text.count("# EOF\n") == 1
    assert len(list(openmetrics(text))) > 30  # type: ignore[no-untyped-call] # has no types


def test_what_is_beyond_the_limit_of_a_family_is_counted(
    served: ServedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    internal = sum(len(topic.partitions) for topic in served.node.topics)
    monkeypatch.setattr(exposition, "SERIES_MAX", internal + 5)
    served.create("many", 5)
    assert f'{LEFT_OUT}{{family="{SIZES}"}}' not in text_of(served)
    served.create("more", 2)
    text = text_of(served)
    assert f'{LEFT_OUT}{{family="{SIZES}"}} 2.0\n' in text
    assert partitions_in(text) == list("01234")
    assert f'{SIZES}{{partition="0",topic="more"}}' not in text


def test_a_name_with_every_character_that_is_allowed_comes_back_whole(served: ServedNode) -> None:
    name = 'a "quoted"\\ name\nin two lines'
    served.node.groups.find_or_create(name)
    groups = {
        sample.labels["group"]
        for family in plain_text(text_of(served))
        for sample in family.samples
        if sample.name == "millstream_group_members"
    }
    assert groups == {name}
