"""`millstream up` with real Spark: HTTP is there first, and survives a job that fails."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.up_process import WITHIN_S, UpProcess
from tests.support.waiting import eventually

APP = """\
import millstream

app = millstream.App("shop")
numbers = app.topic("numbers", schema="user STRING, n BIGINT")


@app.view(key="user")
def totals(numbers):
    return numbers.groupBy("user").sum("n").withColumnRenamed("sum(n)", "total")


@app.view(key="user")
def broken(numbers):
    return numbers.select("nobody")


numbers.publish([{"user": "ada", "n": n} for n in range(5)])
"""


def rows(url: str) -> Any:
    try:
        with urllib.request.urlopen(f"{url}/v1/views/totals/rows", timeout=WITHIN_S) as answer:
            return json.load(answer).get("rows")
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(400)
def test_http_is_there_before_spark_and_after_a_job_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(APP)
    with UpProcess(file) as up:
        assert up.state_of("totals") == "", "Spark has not begun when HTTP answers"
        eventually(lambda: up.state_of("broken") == "failed", what="a failure", within_s=WITHIN_S)
        wanted = [{"user": "ada", "total": 10}]
        eventually(lambda: rows(up.url) == wanted, what=f"a row: {up.said}", within_s=WITHIN_S)
        assert up.stop() == 1
    assert "job broken: its function raised AnalysisException" in up.said
    assert "Traceback" not in up.said
