"""The jobs of docs/guides/exactly_once.md and docs/guides/clusters.md, as they stand there."""

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream.base.ports import BatchReceipt
from millstream.base.positions import positions_from

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"


def blocks_of(guide: str) -> list[str]:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.full
def test_the_jobs_of_the_guide_change_nothing_when_they_run_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(block for block in blocks_of("exactly_once.md") if "app" in block)
    space: dict[str, Any] = {"DATABASE": tmp_path / "shop.db"}
    exec(code, space)
    first = first_receipt(space["database"])
    space["write"](other_rows(spark), first)  # a repeat
    with pytest.raises(RuntimeError, match="the checkpoint is older than the database"):
        space["write"](other_rows(spark), replace(first, positions={}))
    invoices = space["database"].execute("SELECT * FROM invoices ORDER BY id").fetchall()
    space["database"].close()
    space["app"].close()
    assert capsys.readouterr().out == "{'customer': 'ada', 'amount': 160.0}\n(2,)\n"
    assert invoices == [(1, "ada", 40.0), (2, "ada", 120.0)]


def first_receipt(database: sqlite3.Connection) -> BatchReceipt:
    job, query, batch, positions = database.execute("SELECT * FROM receipts").fetchone()
    kept = positions_from(json.loads(positions))
    return BatchReceipt(job=job, epoch=1, query=query, batch=batch, positions=kept)


def other_rows(spark: SparkSession) -> DataFrame:
    """If these came through, the repeat would show."""
    return spark.createDataFrame([(3, "eve", 1.0)], "id BIGINT, customer STRING, amount DOUBLE")


def test_the_application_of_the_clusters_guide_is_the_one_that_is_tested_on_a_cluster() -> None:
    [application] = blocks_of("clusters.md")
    example = (ROOT / "examples" / "clicks.py").read_text(encoding="utf-8")
    assert example.endswith(application)
