"""`millstream run` in processes of their own, with Spark and a broker of the app's own."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

WITHIN_S = 200
APP = """\
from datetime import UTC, datetime

import millstream
from plus import plus_one
from pyspark.sql import functions as F

app = millstream.App("shop")
numbers = app.topic("numbers", schema="user STRING, n BIGINT, at TIMESTAMP", event_time="at")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)

@app.view(key="user")
def totals(numbers):
    more = F.udf(lambda n: plus_one(n), "bigint")
    return numbers.groupBy("user").agg(F.sum(more("n")).alias("total"))

@app.view(key="user")
def broken(numbers):
    return numbers.select("nobody")

numbers.publish([{"user": "ada", "n": n, "at": NOON} for n in range(4)])
app.run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An application of two files, which calls app.run() itself: that is the command's to do."""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "plus.py").write_text("def plus_one(n):\n    return n + 1\n")
    return tmp_path


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    settings = {"MILLSTREAM_SPARK": "local[2]", "MILLSTREAM_SPARK_QUICK_START": "true"}
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", "run", "shop.py", *arguments],
        cwd=folder,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=WITHIN_S)
    return process.returncode, out, err


def totals(folder: Path) -> list[dict[str, Any]]:
    from millstream import App

    with App("shop", data=folder / "shop.millstream").view("totals") as view:
        return [dict(row) for row in view.scan()]


def test_a_run_over_what_is_there_ends_with_its_rows_and_a_code(folder: Path) -> None:
    code, out, err = run(folder, "--once", "--json")
    assert code == 1, err
    assert totals(folder) == [{"user": "ada", "total": 1 + 2 + 3 + 4}]
    last = {line["job"]: line["state"] for line in map(json.loads, out.splitlines())}
    assert last["broken"] == "failed"
    assert re.search(r"job broken: its function raised AnalysisException.*shop\.py:18", err), err
    assert len(err.splitlines()) < 10, "no storm of messages"
    assert "Traceback" not in err

    code, out, err = run(folder, "--check", "--json")
    verdicts = {one["job"]: one["verdict"] for one in json.loads(out)}
    assert (code, verdicts) == (1, {"totals": "unchanged", "broken": "refused"})


def test_ctrl_c_ends_a_run_cleanly(folder: Path) -> None:
    process = start(folder, "--only", "totals", "--metrics-listen", "127.0.0.1:0")
    assert process.stderr is not None
    try:
        url = process.stderr.readline().removeprefix("metrics on ").strip()

        def rows() -> bool:
            return b'rows_total{job_name="totals"} 4.0' in urllib.request.urlopen(url).read()

        eventually(rows, what="four rows in the metrics", within_s=WITHIN_S)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "1 job stopped" in err
    assert totals(folder) == [{"user": "ada", "total": 10}]


def test_what_is_wrong_with_the_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import millstream\n\nx = 1 / 0\n")
    code, _, err = run(tmp_path, "--once")
    assert (code, err) == (1, "millstream: shop.py:3: ZeroDivisionError: division by zero.\n")
    (tmp_path / "shop.py").write_text("x = 1\n")
    code, _, err = run(tmp_path, "--once")
    assert code == 1
    assert err.startswith("millstream: shop.py makes no App where it is imported: ")
    assert err.count("\n") == 1
