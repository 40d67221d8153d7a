"""Every metric is in docs/metrics.md, and named as Prometheus' conventions have it."""

import re
from pathlib import Path

import pytest

from millstream.broker.metrics.document import to_markdown
from millstream.broker.metrics.exposition import LEFT_OUT
from millstream.broker.metrics.family import FAMILIES, Family

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
NAME = re.compile(r"millstream_[a-z]+(_[a-z]+)*")
# What `promtool check metrics` asks for: base units, never their multiples.
FOREIGN_UNITS = re.compile(
    r"_(ms|milliseconds|microseconds|minutes|hours|kb|kib|mb|mib|kilobytes|megabytes|percent)(_|$)"
)
RESERVED_ENDINGS = ("_count", "_sum", "_bucket", "_created")


def test_the_document_is_current() -> None:
    current = DOCUMENT.read_text(encoding="utf-8") == to_markdown()
    assert current, "run: python -m millstream.broker.metrics.document > docs/metrics.md"


def test_every_metric_in_an_alert_exists() -> None:
    named = set(re.findall(r"millstream_[a-z_]+", DOCUMENT.read_text(encoding="utf-8")))
    known = {family.name for family in FAMILIES} | {LEFT_OUT}
    known |= {f"{family.name}_bucket" for family in FAMILIES if family.kind == "histogram"}
    assert named <= known


def test_no_name_is_given_twice() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_follows_the_conventions(family: Family) -> None:
    assert NAME.fullmatch(family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert not FOREIGN_UNITS.search(family.name)
    assert not family.name.endswith(RESERVED_ENDINGS)
    if family.kind == "histogram":
        assert family.name.endswith(("_seconds", "_bytes")), "a histogram has a unit"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_labels_and_help_follow_the_conventions(family: Family) -> None:
    assert family.help.endswith("."), "help is a sentence"
    for label in family.labels:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", label)
        assert label not in ("le", "quantile", "job", "instance")
        assert "|" not in family.help
