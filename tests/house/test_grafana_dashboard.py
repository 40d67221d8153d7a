"""The dashboard in docs/grafana asks only for metrics and labels that are there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from codegen.grafana_dashboard import TARGET, to_json

import millstream.broker.metrics.families  # noqa: F401 - fills the table of families
from millstream.broker.metrics.family import FAMILIES as BROKER_FAMILIES
from millstream.processing.jobs.job_metrics import FAMILIES as JOB_FAMILIES
from millstream.processing.jobs.job_metrics import JOB, LAG, LAG_SECONDS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"
# Prometheus adds these to each series, and a histogram has one for each bucket.
OF_PROMETHEUS = {"instance", "job"}
OF_THE_PROCESS = {"process_resident_memory_bytes"}
NAME = re.compile(r"\b(?:millstream|process)_[a-z_]+")
BY = re.compile(r"\bby \(([^)]*)\)")

DASHBOARD: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
PANELS = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
QUERIES = [(one["title"], target) for one in PANELS for target in one["targets"]]


def known_labels() -> dict[str, set[str]]:
    """Of every series, as Prometheus stores it."""
    found: dict[str, set[str]] = {name: set() for name in OF_THE_PROCESS}
    for family in BROKER_FAMILIES:
        if family.kind == "histogram":
            found[f"{family.name}_bucket"] = {*family.labels, "le"}
        else:
            found[family.name] = set(family.labels)
    for one in JOB_FAMILIES:
        found[one.name] = {JOB}
    return found | {LAG: {JOB, "source"}, LAG_SECONDS: {JOB, "source"}}


LABELS = known_labels()


def test_the_dashboard_is_what_its_generator_writes() -> None:
    is_current = TARGET.read_text(encoding="utf-8") == to_json()
    assert is_current, "run: python codegen/grafana_dashboard.py"


@pytest.mark.parametrize(("panel", "target"), QUERIES, ids=[str(one["expr"]) for _, one in QUERIES])
def test_a_query_names_metrics_and_labels_that_exist(panel: str, target: dict[str, str]) -> None:
    names = NAME.findall(target["expr"])
    assert names, panel
    assert set(names) <= set(LABELS)
    known = set.intersection(*(LABELS[name] for name in names)) | OF_PROMETHEUS
    by = {label.strip() for found in BY.findall(target["expr"]) for label in found.split(",")}
    assert by <= known
    assert "{" not in target["expr"], "no query chooses by a label so far: check it here"
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert shown <= (by if by else known), "a label that the sum has left out"


def test_what_the_guide_says_to_watch_is_in_the_dashboard() -> None:
    """A metric is here by its name, a histogram by its buckets."""
    watched = GUIDE.read_text(encoding="utf-8").split("## Watch it")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in watched.splitlines() if line.startswith("| `millstream")]
    wanted = {name for row in rows for name in NAME.findall(row)}
    shown = {name for _, one in QUERIES for name in NAME.findall(one["expr"])}
    assert len(wanted) >= 10
    assert wanted <= {name.removesuffix("_bucket") for name in shown}


def test_panels_have_ids_places_and_the_datasource_of_the_reader() -> None:
    ids = [one["id"] for one in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    [variable] = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        refs = [one["refId"] for one in panel["targets"]]
        assert refs == ["A", "B", "C"][: len(refs)]
    taken = [
        (x, y)
        for one in DASHBOARD["panels"]
        for x in range(one["gridPos"]["x"], one["gridPos"]["x"] + one["gridPos"]["w"])
        for y in range(one["gridPos"]["y"], one["gridPos"]["y"] + one["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken)), "panels lie over one another"
    assert max(x for x, _ in taken) < 24


def test_the_guide_says_how_to_import_it() -> None:
    assert "../grafana/millstream.json" in GUIDE.read_text(encoding="utf-8")
